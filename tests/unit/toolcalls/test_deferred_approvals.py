"""Calls that name files: approval is requested after a worker has read them, and the call runs with those or not at
all.
"""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import event

from codesdk.approvals import Verdict
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.events import EventType
from codesdk.errors import Fault
from codesdk.sandbox.port import FingerprintKind, NamedPath
from codesdk.sandbox.port.faults import SandboxPaused
from codesdk.toolcalls.approval.flow import DEFERRAL_TIMEOUT_S
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued, Waiting
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from databases import ONLY_SQLITE
from stage import Room, bundle, said, stored_call, wait_for

ASKING = """\
version: 1
default: deny
enable: [workspace.exec]
rules:
  - {id: all, effect: ask, tool: [workspace.exec, workspace.write], approval: {timeout: 10m}}
"""
WRITE = ("workspace.write", {"path": "a.txt", "content": "new"})
RUN = ("workspace.exec", {"command": "bash run.sh"})


@pytest.fixture
def room():
    made = Room(said(b"ran"))
    made.files.put("run.sh", b"echo good\n")
    return made


class Rooms:
    """The one room of every session, or a fault in its place."""

    def __init__(self, room, fault=None):
        self.room = room
        self.fault = fault

    def ready(self, _session):
        if self.fault is not None:
            raise self.fault
        return self.room


@pytest.fixture
def asking(stage, tmp_path, room):
    stage.bundle = bundle(tmp_path / "asking", ASKING, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    stage.pipeline.looks = False
    stage.sandbox_registry = Rooms(room)
    stage.looking = FileFingerprints(
        host=stage.host,
        sandbox_registry=stage.sandbox_registry,
        deferred_approvals=stage.deferred,
        database=stage.database,
    )
    return stage


def approve(stage):
    (approval,) = stage.pending()
    tenant = stage.principal.tenant_id
    return stage.pipeline.vote(
        tenant, approval.id, Verdict.APPROVE, digest=approval.digest, by=stage.principal.id, comment=None
    )


def run(stage, room):
    claimed = stage.claims(stage.bundle).take()
    assert isinstance(claimed, ClaimedCall), claimed
    return stage.execution().run(claimed, lambda: room)


def test_nobody_is_asked_before_a_worker_has_looked(asking):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    assert isinstance(waiting, Waiting)
    assert asking.pending() == []
    assert EventType.APPROVAL_REQUESTED.value not in asking.types()
    assert asking.find(waiting.identity.tool_call_id) == waiting
    asking.looking.look()
    (approval,) = asking.pending()
    assert approval.id == waiting.approval_id
    assert asking.types()[-1] == EventType.APPROVAL_REQUESTED.value
    (shown,) = approval.shown["bound"]["files"]
    assert (shown["path"], shown["sha256"]) == ("run.sh", asking.sandbox_registry.room.files.read("run.sh").sha256)


@pytest.mark.parametrize(
    "line",
    [
        "bash run.sh '\x1b'",
        "bash run.sh # \u200b",
        "'\u202e'; bash run.sh",
        "bash run.sh; ((",
        "true; " * 250 + "bash run.sh",
    ],
    ids=["escape", "zero-width", "bidi", "unparsable", "too many commands"],
)
def test_a_line_that_cannot_be_read_wholly_binds_its_files_all_the_same(asking, line):
    asking.pipeline.submit("workspace.exec", {"command": line}, asking.subject)
    asking.looking.look()
    (approval,) = asking.pending()
    assert "run.sh" in [file["path"] for file in approval.shown["bound"]["files"] if "sha256" in file]


def test_looking_twice_asks_once(asking):
    asking.pipeline.submit(*RUN, asking.subject)
    asking.looking.look()
    asking.looking.look()
    assert asking.types().count(EventType.APPROVAL_REQUESTED.value) == 1


def test_the_worker_of_the_host_is_woken(asking):
    woken, opened = [], threading.Event()
    asking.writer.run(lambda unit: unit.after_commit(opened.set))
    assert opened.wait(60)  # the session's opening wakes the worker as well
    asking.wakeups.bind(asking.host.id, woken.append)
    asking.pipeline.submit(*RUN, asking.subject)
    wait_for(lambda: woken == [asking.subject.session_id], "its wake-up")


def test_the_same_call_again_joins_the_one_that_is_not_asked_yet(asking):
    first = asking.pipeline.submit(*RUN, asking.subject)
    again = asking.pipeline.submit(*RUN, asking.subject)
    assert again.identity == first.identity


def test_a_call_that_names_no_file_is_asked_about_at_once(asking):
    asking.pipeline.submit("workspace.exec", {"command": "true"}, asking.subject)
    assert len(asking.pending()) == 1


def test_what_was_approved_runs_where_its_files_are_as_they_were(asking, room):
    asking.pipeline.submit(*RUN, asking.subject)
    asking.looking.look()
    approve(asking)
    result = run(asking, room)
    assert not result.is_error
    assert [mark.path for mark in room.requests[0].bound] == ["run.sh"]


def test_a_file_tool_runs_where_its_files_are_as_they_were_and_not_where_one_was_rewritten(asking, room):
    for before, after in ((b"old", b"old"), (b"old", b"other"), (None, b"there now"), (b"old", None)):
        room.files.put("a.txt", before) if before is not None else room.files.delete("a.txt")
        asking.pipeline.submit(*WRITE, asking.subject)
        asking.looking.look()
        approve(asking)
        room.files.put("a.txt", after) if after is not None else room.files.delete("a.txt")
        result = run(asking, room)
        if before == after:
            assert not result.is_error
            continue
        assert (result.is_error, result.code) == (True, "FILES_CHANGED")
        assert "a.txt" in result.text
        assert after is None or room.files.read("a.txt").data == after
        assert asking.events()[-1].payload["code"] == "FILES_CHANGED"


def test_other_content_is_another_digest(asking, room):
    digests = set()
    for content in (b"one", b"two", b"two"):
        room.files.put("run.sh", content)
        waiting = asking.pipeline.submit(*RUN, asking.subject)
        asking.looking.look()
        (approval,) = asking.pending()
        digests.add((content, approval.shown["bound"]["files"][0]["sha256"]))
        asking.cancel(waiting.identity.tool_call_id, "next")
    assert len(digests) == 2


def test_marks_that_were_changed_in_the_row_void_the_approval(asking):
    asking.tampered = True
    asking.pipeline.submit(*RUN, asking.subject)
    asking.looking.look()
    approve(asking)
    asking.sql("UPDATE tool_calls SET bound_files = '[]'")
    denied = asking.claims(asking.bundle).take()
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.VOIDED


def test_a_call_that_is_cancelled_before_anybody_is_asked_is_never_asked_about(asking):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    assert asking.cancel(waiting.identity.tool_call_id, "no")
    asking.looking.look()
    asking.deferred.put(waiting.identity.tool_call_id, ())
    assert asking.pending() == []


def test_a_session_that_is_closed_before_anybody_is_asked_ends_the_call(asking):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    asking.sessions.close(asking.subject.tenant_id, asking.subject.session_id)
    asking.looking.look()
    assert asking.pending() == []
    assert stored_call(asking.database, waiting.identity.tool_call_id).state is CallState.DENIED


def test_a_policy_that_changed_meanwhile_asks_nobody(asking, tmp_path):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    other = bundle(
        tmp_path / "other",
        ASKING.replace("effect: ask", "effect: allow").replace(", approval: {timeout: 10m}", ""),
        asking.registry,
    )
    asking.pipeline_with(other)._deferred.put(waiting.identity.tool_call_id, ())
    outcome = asking.find(waiting.identity.tool_call_id)
    assert (outcome.code, asking.pending()) == (DenialCode.VOIDED, [])


class EngineAway(Fault):
    code = "ENGINE_UNAVAILABLE"
    retryable = True


class Ended(Fault):
    code = "SANDBOX_ENDED"


def test_while_the_engine_is_away_the_question_waits_and_where_nothing_is_left_to_look_at_it_is_put(asking):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    asking.sandbox_registry.fault = EngineAway("away")
    asking.looking.look()
    assert asking.pending() == []
    asking.sandbox_registry.fault = Ended("gone")
    asking.looking.look()
    assert [approval.id for approval in asking.pending()] == [waiting.approval_id]


def test_a_call_whose_files_nobody_could_see_runs_nothing_although_its_sandbox_lives(asking, room):
    for given in (RUN, WRITE):
        room.files.put("a.txt", b"old")
        asking.pipeline.submit(*given, asking.subject)
        asking.sandbox_registry.fault = SandboxPaused(
            "ses_1"
        )  # as when it was frozen, or taken over, between two looks
        asking.looking.look()
        (approval,) = asking.pending()
        assert [each["kind"] for each in approval.shown["bound"]["files"]] == ["closed"]
        asking.sandbox_registry.fault = None
        approve(asking)
        claimed = asking.claims(asking.bundle).take()
        assert [mark.kind for mark in claimed.stored.bound] == [FingerprintKind.CLOSED]
        result = asking.execution().run(claimed, lambda: room)
        if given is WRITE:
            assert result.code == "FILES_CHANGED"
            assert room.files.read("a.txt").data == b"old"
        else:
            assert [mark.kind for mark in room.requests[0].bound] == [
                FingerprintKind.CLOSED
            ]  # the runner refuses it by that


def test_a_call_that_no_worker_looks_at_is_denied_after_a_while_as_not_asked(asking):
    waiting = asking.pipeline.submit(*RUN, asking.subject)
    assert asking.expire_overdue() == 0
    asking.tampered = True
    asking.sql(f"UPDATE tool_calls SET requested_at = requested_at - {DEFERRAL_TIMEOUT_S + 1}")
    assert asking.expire_overdue() == 1
    outcome = asking.find(waiting.identity.tool_call_id)
    assert outcome.code is DenialCode.EXPIRED
    assert "nobody was asked" in outcome.message


@ONLY_SQLITE
def test_the_look_for_what_is_overdue_reads_no_history(asking):
    engine, statements = asking.database.reader, []

    def note(_connection, _cursor, statement, parameters, *_more):
        statements.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    asking.expire_overdue()
    event.remove(engine, "before_cursor_execute", note)
    assert len(statements) == 2
    with engine.connect() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given) for statement, given in statements
        ]
        steps = [row[3] for plan in plans for row in plan]
    assert [step for step in steps if "SCAN tool_calls" in step or "SCAN approvals" in step] == []


def test_a_call_that_policy_allows_binds_nothing(stage, room):
    queued = stage.pipeline.submit(*RUN, stage.subject)
    assert isinstance(queued, Queued)
    claimed = stage.claims().take()
    stage.execution().run(claimed, lambda: room)
    assert room.requests[0].bound == ()
    assert room.files.marks((NamedPath(path="run.sh"),))
