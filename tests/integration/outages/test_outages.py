"""Redis and the database become unavailable at each moment of a call: running calls end and are recorded, new ones wait
or are refused with a reason, and everything works again without a restart.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from codesdk.bootstrap import Services
from codesdk.jobs import QueueUnavailable
from codesdk.settings import DataDirUnusable
from codesdk.storage import engines, timeouts
from codesdk.storage.database import StorageUnavailable
from outages import LockedPostgres, LockedSqlite, Outage, OwnPostgres, OwnRedis, Turn
from small_disk import fill, remount, small_disk
from stage import wait_for
from whole_stage import DEADLINE_S, Installation

pytestmark = [pytest.mark.redis, pytest.mark.timeout(300)]
LOCKED_S = 0.5
"""Seconds that a statement waits for another's lock, here."""
SILENT, LOCKED = IMPATIENT = ("postgresql-silent", "postgresql-locked")
"""One that stands still, or whose table of calls is locked, for longer than that is waited for."""
ANSWER_S = 4.0
"""Seconds that such a one is waited for, here."""


def on_postgres(*names: str) -> list[Any]:
    return [pytest.param(f"postgresql-{name}", marks=pytest.mark.postgres) for name in names]


REDIS = ["redis-killed", "redis-frozen"]


@pytest.fixture(scope="module")
def own_redis() -> Iterator[OwnRedis]:
    made = OwnRedis()
    yield made
    made.close()


@pytest.fixture(scope="module")
def own_postgres(postgres_server) -> Iterator[OwnPostgres]:
    del postgres_server  # asked for, so that the programs are there
    made = OwnPostgres()
    yield made
    made.close()


@pytest.fixture
def named(request) -> str:
    """What is taken away."""
    return request.param


@pytest.fixture
def place(named, tmp_path) -> Iterator[Path]:
    """Where its data directory is: on a disk of its own, where that is taken away."""
    if named in ("sqlite-full", "sqlite-read-only"):
        with small_disk(tmp_path / "disk", "16m") as disk:
            yield disk
    else:
        yield tmp_path


@pytest.fixture
def outage(named, request, own_redis, place, monkeypatch) -> Outage:
    """Takes it away, and gives it back."""
    if named == "redis-killed":
        return Turn(own_redis.kill, own_redis.start)
    if named == "redis-frozen":
        return Turn(lambda: own_redis.signal(signal.SIGSTOP), lambda: own_redis.signal(signal.SIGCONT))
    if named == "sqlite-locked":
        monkeypatch.setattr(engines, "SQLITE_BUSY_TIMEOUT_S", LOCKED_S)
        return LockedSqlite(place / "data" / "codesdk.db")
    if named == "sqlite-full":
        return Turn(lambda: fill(place / "ballast"), (place / "ballast").unlink)
    if named == "sqlite-read-only":
        return Turn(lambda: remount(place, "ro"), lambda: remount(place, "rw"))
    own: OwnPostgres = request.getfixturevalue("own_postgres")
    stands_still = Turn(lambda: own.signal(signal.SIGSTOP), lambda: own.signal(signal.SIGCONT))
    return {
        "postgresql-fast": Turn(lambda: own.server.halt(signal.SIGINT), own.server.resume),
        "postgresql-immediate": Turn(lambda: own.server.halt(signal.SIGQUIT), own.server.resume),
        "postgresql-frozen": stands_still,
        SILENT: stands_still,
        LOCKED: LockedPostgres(own),
        "postgresql-cut": Turn(own.cut),
    }[named]


@pytest.fixture
def installation(named, outage, request, own_redis, place) -> Iterator[Installation]:
    """Neither process of it runs yet."""
    del outage  # first: it may change how connections are made
    url = request.getfixturevalue("own_postgres").database() if named.startswith("postgresql") else ""
    more = {"database_answer_s": ANSWER_S} if named in IMPATIENT else {}
    made = Installation(place, own_redis.url, url, **more)
    yield made
    made.close()


@pytest.fixture
def people() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class Scene:
    """Calls at each moment of their lives: one runs, one is queued behind it, one waits for a person, one will be new."""

    def __init__(self, installation: Installation, people: ThreadPoolExecutor) -> None:
        self.installation = installation
        installation.start_api()
        installation.start_worker()
        self.first, self.asking, self.new = self.agents = [installation.open_session() for _ in range(3)]
        self._running = people.submit(self.first.call, "hold running")
        wait_for(lambda: installation.ran("hold running"), "the command", DEADLINE_S)
        self._queued = people.submit(self.first.call, "queued")
        self._asked = people.submit(self.asking.call, "risky")
        self.approval = self.asking.approval()
        wait_for(lambda: self.first.requested() == 2, "the queued one", DEADLINE_S)

    def release(self) -> None:
        """Let what runs end."""
        self.installation.release("hold running")

    def vote(self) -> Any:
        """A person approves."""
        return self.asking.approve(self.approval)

    def health(self) -> int:
        with self.installation.http(self.asking.key) as http:
            return http.get("/health").status_code

    def ended_well(self) -> None:
        """Every call has its own result and has run once; the logs are lawful."""
        outputs = [each.result(DEADLINE_S).output for each in (self._running, self._queued, self._asked)]
        assert outputs == ["hold running", "queued", "risky"]
        assert [self.installation.runs_of(agent.session) for agent in self.agents] == [2, 1, 1]
        for agent in self.agents:
            agent.is_lawful()

    def was_read(self, seen: list[int]) -> None:
        """The reader of the first session's stream got each event once."""
        wait_for(lambda: seen == [event.seq for event in self.first.events()], f"each event once: {seen}", DEADLINE_S)


@pytest.mark.parametrize("named", [*REDIS, *on_postgres("cut")], indirect=True)
def test_without_redis_and_over_cut_connections_everything_goes_on(installation, outage, people):
    scene = Scene(installation, people)
    with scene.first.read_along() as seen:
        outage.begin()
        try:
            assert (scene.new.call("new").output, scene.health()) == ("new", 200)
            scene.release()
            assert scene.vote().status_code == 200
            scene.ended_well()
        finally:
            outage.end()
        assert scene.first.call("afterwards").output == "afterwards"
        scene.was_read(seen)


@pytest.mark.parametrize(
    "named", [*on_postgres("fast", "immediate", "silent", "locked"), "sqlite-locked", "sqlite-full"], indirect=True
)
def test_without_its_database_what_is_new_is_refused_in_words_and_what_runs_is_recorded_afterwards(
    installation, outage, people, named
):
    scene = Scene(installation, people)
    is_locked = named in (LOCKED, "sqlite-locked")
    code = "DATABASE_LOCKED" if is_locked else {"sqlite-full": "DATABASE_FULL"}.get(named, "DATABASE_GONE")
    with scene.first.read_along() as seen:
        outage.begin()
        try:
            refused, vote = scene.new.call("new"), scene.vote()
            assert (refused.code, refused.details["retryable"]) == (code, True)
            assert "not run" in refused.text or "Nothing was run" in refused.text
            assert (vote.status_code, vote.json()["code"], vote.json()["retryable"]) == (503, code, True)
            assert vote.headers["Retry-After"]
            can_be_read = is_locked or named.startswith("sqlite")
            assert scene.health() == (200 if can_be_read else 503)
            scene.release()
        finally:
            outage.end()
        if named == SILENT:  # a server that was silent is left alone for a moment
            wait_for(lambda: scene.health() == 200, "an answer", DEADLINE_S)
        assert scene.new.call("new").output == "new"
        assert scene.vote().status_code == 200
        scene.ended_well()
        scene.was_read(seen)


@pytest.mark.parametrize("named", on_postgres("frozen"), indirect=True)
def test_a_database_that_stands_still_for_longer_than_its_callers_wait_costs_no_second_run(
    installation, outage, people, monkeypatch
):
    monkeypatch.setattr(timeouts, "IDLE_TRANSACTION_S", 1)
    scene = Scene(installation, people)
    with scene.first.read_along() as seen:
        outage.begin()
        try:
            scene.release()
            with pytest.raises(TimeoutError):
                scene.new.call("new", patience_s=2.0)
        finally:
            outage.end()
        # Where the first was taken after all and has ended by now, it is not run again, and its result is collected.
        assert scene.new.in_the_end(scene.new.call("new")).output == "new"
        assert scene.vote().status_code == 200
        scene.ended_well()
        scene.was_read(seen)


@pytest.mark.parametrize("named", [*REDIS, *on_postgres("fast", "frozen")], indirect=True)
def test_a_call_whose_commit_was_the_last_thing_to_happen_runs_by_itself_and_once(
    installation, outage, people, named, monkeypatch
):
    installation.start_api()
    installation.start_worker()
    agent = installation.open_session()
    assert agent.call("first").output == "first"
    wake, woken, told = installation.api.wakeups.wake, [], threading.Event()
    installation.api.writer.run(lambda unit: unit.after_commit(told.set))
    assert told.wait(DEADLINE_S)  # what woke the worker before may be late, and must not be taken for the second call's

    def take_away_first(host: Any, subject: str) -> None:
        if not woken:
            outage.begin()
        woken.append(subject)
        wake(host, subject)

    monkeypatch.setattr(installation.api.wakeups, "wake", take_away_first)
    answer = people.submit(agent.call, "second")
    try:
        wait_for(lambda: woken, "the wake-up", DEADLINE_S)
        if named in REDIS:
            assert answer.result(DEADLINE_S).output == "second"
    finally:
        outage.end()
    assert agent.in_the_end(answer.result(DEADLINE_S)).output == "second"
    assert installation.runs_of(agent.session) == 2
    agent.is_lawful()


@pytest.mark.parametrize("named", [*REDIS, *on_postgres("fast"), "sqlite-locked", "sqlite-read-only"], indirect=True)
def test_processes_that_start_meanwhile_serve_or_say_what_is_missing_and_hold_nothing(installation, outage, named):
    Services(installation.settings).close()  # the database has its tables
    api_starts = named in REDIS
    outage.begin()
    try:
        if api_starts:
            installation.start_api()
        else:
            with pytest.raises((StorageUnavailable, DataDirUnusable)):
                installation.start_api()
        with pytest.raises(QueueUnavailable if api_starts else (StorageUnavailable, DataDirUnusable)):
            installation.start_worker()
    finally:
        outage.end()
    if not api_starts:
        installation.start_api()
    installation.start_worker()
    agent = installation.open_session()
    assert agent.call("served").output == "served"
