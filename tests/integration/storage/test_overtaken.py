"""Two processes' writers on one PostgreSQL: the second changes what the first has read, before the first commits."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from sqlalchemy import text

from codesdk.approvals import Verdict
from codesdk.archive.retention import Retention
from codesdk.artifacts import ArtifactInUse, ArtifactUnknown
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.quotas import Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.sessions import NewSession
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.toolcalls import pipeline
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued
from stage import DEADLINE_S

pytestmark = pytest.mark.postgres
WRITE = ("workspace.write", {"path": "a", "content": "b"})
EXEC = ("workspace.exec", {"command": "x"})
PATCH = ("patch.apply", {"patch": "x"})


@pytest.fixture
def database_kind():
    return "postgresql"


@pytest.fixture
def other(stage):
    """Another process's writer."""
    database = Database(stage.url)
    writer = Writer(database)
    yield writer
    writer.close()
    database.close()


def of_other(service, other):
    """The same service in the other process."""
    made = copy.copy(service)
    made._writer = other
    if isinstance(made, Pipeline):
        made._deferred = of_other(made._deferred, other)  # no unit may wait for a unit of its own writer
    return made


def states(stage):
    return [row.state for row in stage.sql("SELECT state FROM tool_calls ORDER BY requested_at")]


@pytest.mark.parametrize("call", [WRITE, EXEC], ids=["asked", "queued"])
def test_a_call_whose_session_is_closed_while_it_is_recorded_is_denied_and_leaves_nothing(
    stage, other, monkeypatch, call
):
    append, closed = stage.log.append, []

    def close_first(unit, draft, **more):
        if not closed:
            closed.append(True)
            of_other(stage.sessions, other).close(stage.principal.tenant_id, stage.session.id)
        append(unit, draft, **more)

    monkeypatch.setattr(stage.log, "append", close_first)
    denied = stage.pipeline.submit(*call, stage.subject)
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.SESSION_CLOSED
    assert states(stage) == []
    assert stage.types() == ["sandbox.session_closed"]


@pytest.mark.parametrize(
    ("call", "more"),
    [
        (EXEC, {"runtime_tool_call_id": "toolu_1"}),
        (WRITE, {"runtime_tool_call_id": "toolu_1"}),
        (PATCH, {"runtime_tool_call_id": "toolu_1"}),
        (EXEC, {"join": True}),
        (WRITE, {}),
    ],
    ids=["queued", "asked", "denied", "joined", "joined in its wait"],
)
def test_a_call_that_another_process_takes_between_the_look_for_it_and_its_row_is_one(
    stage, other, monkeypatch, call, more
):
    theirs, taken = of_other(stage.pipeline, other), []
    looks, locks = pipeline._find_same_id, stage.pipeline._reserve_queue_slot

    def they_take_it():
        if not taken:
            taken.append(None)
            taken[0] = theirs.submit(*call, stage.subject, **more)

    def look(*given):
        found = looks(*given)
        they_take_it()
        return found

    def lock(*given):
        they_take_it()
        return locks(*given)

    if call is PATCH:  # what is denied at once reserves nothing
        monkeypatch.setattr(pipeline, "_find_same_id", look)
    else:
        monkeypatch.setattr(stage.pipeline, "_reserve_queue_slot", lock)
    ours = stage.pipeline.submit(*call, stage.subject, **more)
    assert ours.identity == taken[0].identity
    assert type(ours) is type(taken[0])
    assert len(states(stage)) == 1
    assert stage.types().count("tool.call.requested") == 1


def test_a_claim_passes_over_a_call_that_another_process_is_about_to_change(stage, other):
    first, second = (stage.pipeline.submit(*EXEC, stage.open_session()).identity.tool_call_id for _ in range(2))

    def meanwhile(unit):
        held = store.find(unit.connection, first, hold=True)
        with ThreadPoolExecutor(1) as threads:
            claimed = threads.submit(stage.claims().take).result(DEADLINE_S)
        return held, claimed

    held, claimed = other.run(meanwhile)
    assert held.state is CallState.QUEUED
    assert claimed.stored.identity.tool_call_id == second


def test_sessions_that_two_processes_open_at_once_get_uids_of_their_own(stage, other):
    desks = [stage.sessions, of_other(stage.sessions, other)]
    with ThreadPoolExecutor(8) as threads:
        opening = [threads.submit(desks[n % 2].open, stage.principal, NewSession()) for n in range(24)]
        assert len({each.result(60)[0].id for each in opening}) == 24
    uids = [row.tool_uid for row in stage.sql("SELECT tool_uid FROM sandboxes")]
    assert len(uids) == len(set(uids)) == 25


def test_a_vote_and_a_cancel_at_once_end_in_one_of_the_two(stage, other):

    pipelines = [stage.pipeline, of_other(stage.pipeline, other)]
    for number in range(8):
        subject = stage.open_session()
        asked = pipelines[number % 2].submit(*WRITE, subject)
        (approval,) = stage.pending()
        with ThreadPoolExecutor(2) as threads:
            voting = threads.submit(
                pipelines[0].vote,
                stage.principal.tenant_id,
                approval.id,
                Verdict.APPROVE,
                digest=approval.digest,
                by=stage.principal.id,
                comment=None,
            )
            cancelling = threads.submit(
                pipelines[1].cancel,
                stage.principal.tenant_id,
                subject.session_id,
                asked.identity.tool_call_id,
                "no more",
            )
            assert cancelling.result(60) is True
            voting.exception(60)
        (row,) = stage.sql("SELECT state FROM tool_calls WHERE id = :id", id=asked.identity.tool_call_id)
        assert row.state == "denied"
        assert stage.pending() == []


def test_a_row_that_another_process_made_first_is_found_on_the_next_try(stage, other):
    tries = []

    def work(unit):
        found = unit.connection.execute(text("SELECT id FROM tenants WHERE name = 'new'")).scalar()
        tries.append(found)
        if found is None:
            if len(tries) == 1:
                other.run(
                    lambda unit: unit.connection.execute(
                        text("INSERT INTO tenants (id, name, created_at) VALUES('theirs', 'new', 0)")
                    )
                )
            unit.connection.execute(text("INSERT INTO tenants (id, name, created_at) VALUES('ours', 'new', 0)"))
        return found

    assert stage.writer.run(work) == "theirs"
    assert tries == [None, "theirs"]


@pytest.mark.parametrize("by", ["deletion", "retention"])
def test_a_seed_that_is_to_be_removed_while_a_session_opens_from_it_stays(stage, other, monkeypatch, by):
    """A session reads its seed's record and is not there yet for whoever removes artifacts."""
    tenant, old = stage.principal.tenant_id, stage.session.id
    seed = stage.artifacts.put(b"tar", tenant, old, content_type="application/x-tar", name="seed")
    stage.writer.run(lambda unit: stage.artifacts.record(unit, seed))
    stage.sessions.close(tenant, old)
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    stage.sql("UPDATE sessions SET closed_at = 0")
    artifacts = of_other(stage.artifacts, other)
    retention = Retention(database=stage.database, writer=other, artifacts=artifacts, clock=stage.clock)
    remove = {
        "deletion": lambda: artifacts.delete(tenant, seed.id),
        "retention": lambda: retention.prune(1.0, reason="test"),
    }[by]
    reserve, removing = stage.sessions._reserve, []

    with ThreadPoolExecutor() as beside:

        def remove_meanwhile(*given):
            if not removing:
                removing.append(beside.submit(remove))
                with pytest.raises(TimeoutError):
                    removing[0].result(timeout=0.5)
            return reserve(*given)

        monkeypatch.setattr(stage.sessions, "_reserve", remove_meanwhile)
        opened, _ = stage.sessions.open(stage.principal, NewSession(seed_artifact=seed.id))
        if by == "deletion":
            with pytest.raises(ArtifactInUse):
                removing[0].result(timeout=DEADLINE_S)
        else:
            assert removing[0].result(timeout=DEADLINE_S).sessions == ()
    assert stage.artifacts.find(tenant, seed.id) == seed
    assert opened.state == "open"


def test_a_seed_that_is_gone_or_a_strangers_opens_no_session(stage):
    with pytest.raises(ArtifactUnknown):
        stage.sessions.open(stage.principal, NewSession(seed_artifact="art_none"))
    assert len(stage.sessions.listing(stage.principal.tenant_id)) == 1


MEANWHILE_S = 0.5
"""How long another process is given to get ahead; it has less to do than a twentieth of that, unless it is held up."""


@pytest.fixture
def beside():
    """A thread for what the other process does meanwhile."""
    with ThreadPoolExecutor(1) as threads:
        yield threads


def once_after(owner, name, monkeypatch, beside, work):
    """Begin `work` in the other process when the first such step is done, in the unit's midst; its future, in a list."""
    step, begun = getattr(owner, name), []

    def stepped(*given, **named):
        found = step(*given, **named)
        if not begun:
            begun.append(None)
            begun[0] = beside.submit(work)
            wait(begun, MEANWHILE_S)
        return found

    monkeypatch.setattr(owner, name, stepped)
    return begun


def test_workers_of_two_processes_run_no_more_of_a_tenant_than_may(stage, other, monkeypatch, beside):
    stage.limit(Resource.RUNNING_CALLS, 1)
    for _ in range(2):
        stage.pipeline.submit(*EXEC, stage.open_session())
    ours, theirs = stage.claims(), of_other(stage.claims(), other)
    begun = once_after(ours, "_has_room", monkeypatch, beside, theirs.take)
    taken = [ours.take(), begun[0].result(DEADLINE_S)]
    assert [isinstance(each, ClaimedCall) for each in taken] == [True, False]


def test_callers_of_two_processes_queue_no_more_of_a_tenant_than_may_wait(stage, other, monkeypatch, beside):
    stage.limit(Resource.QUEUED_CALLS, 1)
    subjects = [stage.open_session() for _ in range(2)]
    theirs = of_other(stage.pipeline, other)
    begun = once_after(
        stage.pipeline, "_reserve_queue_slot", monkeypatch, beside, lambda: theirs.submit(*EXEC, subjects[1])
    )
    outcomes = [stage.pipeline.submit(*EXEC, subjects[0]), begun[0].result(DEADLINE_S)]
    assert [type(each) for each in outcomes] == [Queued, Denied]
    assert outcomes[1].code is DenialCode.QUEUE_FULL


def ended(stage, claimed, writer):
    result = ToolResult(text="ok")
    writer.run(
        lambda unit: complete(unit, stage.log, claimed, result, result_ref=None, last_output=(), duration_ms=1.0)
    )


def test_a_call_that_is_queued_while_another_process_ends_the_one_before_it_is_not_held_for_good(
    stage, other, monkeypatch, beside
):
    stage.pipeline.submit(*EXEC, stage.subject)
    running = stage.claims().take()
    begun = once_after(queue, "release_next", monkeypatch, beside, lambda: ended(stage, running, other))
    queued = stage.pipeline.submit(*EXEC, stage.subject)
    begun[0].result(DEADLINE_S)
    assert stage.claims().take().stored.identity == queued.identity


def test_a_call_whose_turn_comes_while_another_process_queues_one_more_is_the_only_one_let_go(
    stage, other, monkeypatch, beside
):
    subject = stage.open_session(parallel_calls=1)
    theirs = of_other(stage.pipeline, other)
    begun = once_after(queue, "release_next", monkeypatch, beside, lambda: theirs.submit(*EXEC, subject))
    stage.pipeline.submit(*EXEC, subject)
    begun[0].result(DEADLINE_S)
    held = stage.sql(
        "SELECT held FROM tool_calls WHERE session_id = :session ORDER BY held", session=subject.session_id
    )
    assert [row.held for row in held] == [False, True]
