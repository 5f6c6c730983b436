"""Opening a session chooses a host and reserves it, and names what is missing if there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.hosts import Capacity
from codesdk.hosts import store as host_store
from codesdk.sessions import NewSession, NoHost
from codesdk.storage.writer import Writer
from codesdk.worker.ownership.registration import HostOffer, register

IMAGES = {"base": "sha256:" + "1" * 64}


def enter(stage, name, images=IMAGES, **offer):
    return register(stage.writer, stage.ids, name, images, 0.0, offer=HostOffer(**offer))


def opened(stage, **wish):
    session, _ = stage.sessions.open(stage.principal, NewSession(**wish))
    return session


def test_a_session_goes_to_the_host_with_the_fewest_and_is_pinned_to_the_image_there(stage):
    blue = enter(stage, "blue")
    session = opened(stage)
    assert (session.host_id, session.image) == (blue.id, IMAGES["base"])
    assert [opened(stage).host_id for _ in range(2)] in ([stage.host.id, blue.id], [blue.id, stage.host.id])


def test_labels_that_a_session_asks_for_choose_its_host(stage):
    zoned = enter(stage, "zoned", labels={"zone": "a", "gpu": "yes"})
    for _ in range(3):
        assert opened(stage, host_labels={"zone": "a"}).host_id == zoned.id
    with pytest.raises(NoHost, match="zone=b") as refused:
        opened(stage, host_labels={"zone": "b"})
    assert refused.value.details == {"missing": {"labels": 2}}


@pytest.mark.parametrize(
    ("capacity", "lack"),
    [
        (Capacity(sessions=2), "sessions"),
        (Capacity(memory_bytes=2 * 512 * 1024**2), "memory"),
        (Capacity(millicpus=2500), "cpu"),
    ],
)
def test_a_full_host_takes_no_more_until_a_sandbox_is_gone(stage, capacity, lack):
    stage.sql("UPDATE hosts SET state = 'draining'")
    enter(stage, "small", capacity=capacity)
    first, _ = opened(stage), opened(stage)
    with pytest.raises(NoHost) as refused:
        opened(stage)
    assert refused.value.details == {"missing": {"draining": 1, lack: 1}}
    assert (refused.value.retryable, refused.value.status) == (True, 503)
    stage.sessions.close(stage.principal.tenant_id, first.id)
    with pytest.raises(NoHost):
        opened(stage)
    stage.sql("UPDATE sandboxes SET state = 'gone' WHERE state = 'closing'")
    opened(stage)


@pytest.mark.parametrize(
    ("change", "lack"),
    [("state = 'draining'", "draining"), ("state = 'lost'", "lost")],
)
def test_nothing_is_placed_where_nothing_may_be(stage, change, lack):
    stage.sql(f"UPDATE hosts SET {change}")
    with pytest.raises(NoHost) as refused:
        opened(stage)
    assert refused.value.details == {"missing": {lack: 1}}


def test_a_host_whose_worker_was_stopped_in_order_is_the_last_choice_and_its_sessions_wait(stage):
    stage.sql("UPDATE hosts SET left_at = 1")
    assert opened(stage).host_id == stage.host.id
    blue = enter(stage, "blue", capacity=Capacity(sessions=1))
    assert [opened(stage).host_id for _ in range(2)] == [blue.id, stage.host.id]


def test_writers_of_several_processes_never_fill_a_host_beyond_what_it_has(stage):
    stage.sql("UPDATE hosts SET most_sessions = 4")
    others = [Writer(stage.database, stage.root / "write.lock" if stage.database.is_sqlite else None) for _ in range(2)]

    def try_to_open(writer):
        desk = stage.sessions_with(writer)
        try:
            return desk.open(stage.principal, NewSession())[0].id
        except NoHost:
            return None

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(try_to_open, others * 6))
    for writer in others:
        writer.close()
    assert len([each for each in found if each]) == 3  # the stage's own session has one
    with stage.database.read() as connection:
        assert host_store.find(connection, "local").sessions == 4
