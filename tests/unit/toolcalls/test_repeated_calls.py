"""A repeated call, by its client's id or by its input: one row, one run, one outcome."""

from __future__ import annotations

import copy

import pytest

from codesdk.approvals import Verdict
from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.pipeline import CallIdTaken
from codesdk.toolcalls.records.call_record import Denied, Finished, Queued, Waiting
from codesdk.toolcalls.retries.lost_calls import Loss
from stage import bundle

READ = ("workspace.read", {"path": "a"})
OTHER_READ = ("workspace.read", {"path": "b"})
WRITE = ("workspace.write", {"path": "a", "content": "b"})
PATCH = ("patch.apply", {"patch": "x"})


def submit(stage, call=READ, given="toolu_1", subject=None, **more):
    return stage.pipeline.submit(*call, subject or stage.subject, runtime_tool_call_id=given, **more)


def calls(stage):
    return [row.id for row in stage.sql("SELECT id FROM tool_calls ORDER BY requested_at")]


def finish(stage, claimed, text="ok"):
    stage.writer.run(
        lambda unit: complete(
            unit, stage.log, claimed, ToolResult(text=text), result_ref=None, last_output=(), duration_ms=1.0
        )
    )


def again(stage, first, call=READ):
    """The same call once more: its outcome, after which nothing is there that was not before."""
    before = (calls(stage), stage.types())
    second = submit(stage, call)
    assert (calls(stage), stage.types()) == before
    assert second.identity == first.identity
    return second


class TestById:
    def test_a_queued_call_is_not_queued_twice(self, stage):
        first = submit(stage)
        assert again(stage, first) == first
        assert stage.claims().take().stored.identity == first.identity
        assert stage.claims().take() is None

    def test_a_running_call_is_joined(self, stage):
        first = submit(stage)
        stage.claims().take()
        assert again(stage, first) == Queued(identity=first.identity)

    def test_a_finished_call_gives_its_result_however_often_it_is_asked_for(self, stage):
        first = submit(stage)
        finish(stage, stage.claims().take(), "the file")
        for _ in range(2):
            ended = again(stage, first)
            assert isinstance(ended, Finished)
            assert ended.result.text == "the file"

    def test_a_call_that_waits_for_a_person_asks_once(self, stage):
        first = submit(stage, WRITE)
        assert isinstance(first, Waiting)
        assert again(stage, first, WRITE) == first
        assert len(stage.pending()) == 1

    def test_a_call_about_which_nobody_is_asked_yet_still_waits(self, stage):
        stage.pipeline.looks = False
        first = submit(stage, ("workspace.exec", {"command": "bash a.sh"}))
        again(stage, first, ("workspace.exec", {"command": "bash a.sh"}))

    def test_a_rejected_call_stays_rejected_and_nobody_is_asked_again(self, stage):
        first = submit(stage, WRITE)
        (asked,) = stage.pending()
        stage.pipeline.vote(
            asked.tenant_id, asked.id, Verdict.REJECT, digest=asked.digest, by=stage.principal.id, comment="no"
        )
        denied = again(stage, first, WRITE)
        assert isinstance(denied, Denied)
        assert denied.code is DenialCode.REJECTED
        assert stage.pending() == []

    def test_a_call_that_policy_denied_is_denied_once(self, stage):
        first = submit(stage, PATCH)
        denied = again(stage, first, PATCH)
        assert isinstance(denied, Denied)
        assert (denied.code, denied.message) == (first.code, first.message)

    def test_what_policy_says_now_changes_nothing_of_a_call_that_was_decided(self, stage):
        first = submit(stage)
        strict = bundle(stage.root / "strict", "version: 1\nname: strict\ndefault: deny\n", stage.registry)
        stage.pipeline = stage.pipeline_with(strict)
        assert again(stage, first) == first

    def test_a_closed_session_gives_the_outcome_and_takes_no_more(self, stage):
        first = submit(stage)
        finish(stage, stage.claims().take())
        stage.sessions.close(stage.principal.tenant_id, stage.session.id)
        assert isinstance(again(stage, first), Finished)
        refused = submit(stage, given="toolu_2")
        assert isinstance(refused, Denied)
        assert refused.code is DenialCode.SESSION_CLOSED

    def test_a_full_queue_does_not_stand_between_a_client_and_its_answer(self, stage):
        first = submit(stage)
        stage.limit(Resource.QUEUED_CALLS, 1)
        assert again(stage, first) == first
        turned_away = submit(stage, OTHER_READ, "toolu_2")
        assert turned_away.code is DenialCode.QUEUE_FULL

    def test_the_next_attempt_of_a_lost_call_is_found_by_the_same_id(self, stage):
        first = submit(stage)
        stage.execution().lose(stage.claims().take(), Loss("It went away."))
        found = submit(stage)
        assert found.identity == first.identity.model_copy(update={"attempt": 2})
        said = [event.payload for event in stage.events() if event.type == "tool.call.requested"]
        assert [(each["attempt"], each["runtime_tool_call_id"]) for each in said] == [(1, "toolu_1"), (2, "toolu_1")]
        assert len(calls(stage)) == 1

    def test_two_ids_are_two_calls_and_a_call_without_one_is_another(self, stage):
        found = [submit(stage, given=given).identity.tool_call_id for given in ("toolu_1", "toolu_2", None, None)]
        assert len(set(found)) == 4

    def test_another_sessions_id_is_its_own(self, stage):
        first, other = submit(stage), submit(stage, subject=stage.open_session())
        assert first.identity.tool_call_id != other.identity.tool_call_id

    @pytest.mark.parametrize("call", [OTHER_READ, WRITE], ids=["another input", "another tool"])
    def test_an_id_that_was_given_to_another_call_is_refused_with_what_to_do(self, stage, call):
        first = submit(stage)
        before = (calls(stage), stage.types())
        with pytest.raises(CallIdTaken) as refused:
            submit(stage, call)
        assert (refused.value.code, refused.value.status) == ("CALL_ID_TAKEN", 409)
        assert refused.value.details == {"tool_call_id": first.identity.tool_call_id, "tool": "workspace.read"}
        assert "toolu_1" in str(refused.value)
        assert "an id of its own" in refused.value.advice()
        assert (calls(stage), stage.types()) == before


class TestByInput:
    def test_who_wants_to_join_gets_the_equal_call_that_is_queued_or_runs(self, stage):
        first = submit(stage, given=None)
        assert submit(stage, given=None, join=True) == first
        claimed = stage.claims().take()
        assert submit(stage, given=None, join=True) == first
        finish(stage, claimed)
        assert submit(stage, given=None, join=True).identity != first.identity

    def test_who_does_not_say_so_makes_a_call_of_its_own(self, stage):
        assert submit(stage, given=None).identity != submit(stage, given=None).identity

    def test_another_input_another_session_and_a_cancelled_call_are_not_joined(self, stage):
        first = submit(stage, given=None)
        others = [
            submit(stage, OTHER_READ, None, join=True),
            submit(stage, given=None, subject=stage.open_session(), join=True),
        ]
        stage.cancel(first.identity.tool_call_id, "no more")
        others.append(submit(stage, given=None, join=True))
        assert len({each.identity.tool_call_id for each in [first, *others]}) == 4

    def test_a_full_queue_does_not_keep_anybody_from_joining(self, stage):
        first = submit(stage, given=None)
        stage.limit(Resource.QUEUED_CALLS, 1)
        assert submit(stage, given=None, join=True) == first


# -- several processes at once ----------------------------------------------------------------------------------------


@pytest.fixture
def pipelines(stage, writers):
    """Those of four processes, as far as the database can tell."""
    made = [copy.copy(stage.pipeline) for _ in writers]
    for pipeline, writer in zip(made, writers, strict=True):
        pipeline._writer = writer
        pipeline._deferred = copy.copy(pipeline._deferred)
        pipeline._deferred._writer = writer
    return made


@pytest.mark.parametrize("more", [{"runtime_tool_call_id": "toolu_1"}, {"join": True}], ids=["id", "input"])
def test_processes_that_take_the_same_call_at_once_take_one(stage, pipelines, at_once, more):
    """What each may find of the others is forced, step by step, in `integration/storage/test_overtaken.py`."""
    for call in (READ, WRITE, PATCH)[: 3 if "join" not in more else 2]:
        subject = stage.open_session()
        outcomes = at_once(lambda n, call=call, subject=subject: pipelines[n % 4].submit(*call, subject, **more), 8)
        assert len({each.identity.tool_call_id for each in outcomes}) == 1
        assert len({type(each) for each in outcomes}) == 1
        (row,) = stage.sql("SELECT id FROM tool_calls WHERE session_id = :session", session=subject.session_id)
        assert row.id == outcomes[0].identity.tool_call_id
        assert [event.type for event in stage.events(subject)].count("tool.call.requested") == 1
