"""Two processes' writers on one PostgreSQL: what one read, the other changes before it is done."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from codesdk.approvals import Verdict
from codesdk.domain.calls import CallState, DenialCode
from codesdk.sessions import NewSession
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.toolcalls import store
from codesdk.toolcalls.stored import Denied
from stage import DEADLINE_S

pytestmark = pytest.mark.postgres
WRITE = ("workspace.write", {"path": "a", "content": "b"})
EXEC = ("workspace.exec", {"command": "x"})


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
    return made


def states(stage):
    return [row.state for row in stage.sql("SELECT state FROM tool_calls ORDER BY requested_at")]


@pytest.mark.parametrize("call", [WRITE, EXEC], ids=["asked", "queued"])
def test_a_call_whose_session_is_closed_while_it_is_recorded_is_denied_and_leaves_nothing(
    stage, other, monkeypatch, call
):
    append, closed = stage.log.append, []

    def close_first(unit, draft):
        if not closed:
            closed.append(True)
            of_other(stage.sessions, other).close(stage.principal.tenant_id, stage.session.id)
        append(unit, draft)

    monkeypatch.setattr(stage.log, "append", close_first)
    denied = stage.pipeline.submit(*call, stage.subject)
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.SESSION_CLOSED
    assert states(stage) == []
    assert stage.types() == ["sandbox.session_closed"]


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
