"""Answers to agents."""

from __future__ import annotations

import pytest

from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.ids import ToolCallId
from codesdk.domain.tool_results import ToolResult, Truncation
from codesdk.jobs import QueueUnavailable
from codesdk.mcphost.tool_calls import answers
from codesdk.registry import InvalidInput
from codesdk.storage.database import StorageUnavailable
from codesdk.toolcalls.records.call_record import Denied, Finished, Queued, Waiting
from stage import shipped

IDENTITY = CallIdentity(tool_call_id=ToolCallId("call_1"), input_hash="sha256:0")


def details(answer):
    return answer.meta["codesdk/call"]


def test_a_result_keeps_its_text_its_structure_and_its_counts():
    result = ToolResult(
        text="out", structured={"a": 1}, artifacts=("art_1",), stdout=Truncation(bytes=9, shown=3, dropped=0)
    )
    answer = answers.finished(Finished(identity=IDENTITY, result=result), None)
    assert (answer.content[0].text, answer.structured_content, answer.is_error) == ("out", {"a": 1}, False)
    assert details(answer) == {
        "status": "completed",
        "artifacts": ["art_1"],
        "stdout": {"bytes": 9, "shown": 3, "dropped": 0, "gap": 0},
        "tool_call_id": "call_1",
        "attempt": 1,
    }


@pytest.mark.parametrize("outcome", ["exited", "signaled", "timed_out", "cancelled", "oom_killed", "spawn_failed"])
def test_a_failed_command_has_its_structure_under_the_tools_schema(outcome):
    structured = {"exit_code": 3, "signal": None, "outcome": outcome, "stdout": "o", "stderr": "e", "truncated": False}
    structured |= {"stdout_bytes": 1, "stderr_bytes": 1, "duration_ms": 5}
    result = ToolResult(text="no", structured=structured, is_error=True, code="TIMED_OUT")
    answer = answers.finished(Finished(identity=IDENTITY, result=result), shipped().resolve("workspace.exec"))
    assert (answer.structured_content, answer.is_error) == (structured, True)


def test_a_failed_result_that_the_schema_does_not_describe_has_no_structure():
    """Clients that validate failed results, too, would drop the whole answer."""
    result = ToolResult(text="no", structured={"a": 1}, is_error=True, code="TIMEOUT")
    answer = answers.finished(Finished(identity=IDENTITY, result=result), shipped().resolve("workspace.exec"))
    assert (answer.structured_content, answer.content[0].text, details(answer)["code"]) == (None, "no", "TIMEOUT")


@pytest.mark.parametrize("code", list(DenialCode))
def test_a_denial_never_sounds_as_if_it_had_run(code):
    denied = Denied(identity=IDENTITY, code=code, message="No.", rules=("r1", "r2"))
    answer = answers.denied(denied)
    assert answer.is_error
    assert answer.content[0].text == f"This call was not run. No. Decided by: r1, r2. [{code.value}]"
    assert (details(answer)["status"], details(answer)["retryable"]) == ("denied", False)


@pytest.mark.parametrize(("after", "named", "told"), [(2.0, True, True), (2.0, False, False), (None, True, False)])
def test_a_named_call_that_came_too_soon_is_to_be_sent_under_another_name(after, named, told):
    denied = Denied(identity=IDENTITY, code=DenialCode.RATE_LIMITED, message="Too soon.", retry_after_s=after)
    answer = answers.denied(denied, is_named=named)
    assert ("under a new id" in answer.content[0].text, details(answer)["retryable"]) == (told, after is not None)


def test_a_wait_says_why_by_whom_until_when_and_how_to_go_on():
    waiting = Waiting(identity=IDENTITY, approval_id="apr_1", reason="It installs software.", expires_at=0.5)
    answer = answers.waiting(waiting, ("installs",), "2 people of ops")
    text = answer.content[0].text
    for part in (
        "It installs software.",
        "2 people of ops",
        "installs",
        "apr_1",
        "1970-01-01T00:00:00.500Z",
        "same arguments",
    ):
        assert part in text
    assert details(answer)["expires_at"] == "1970-01-01T00:00:00.500Z"
    assert details(answer)["retryable"]


@pytest.mark.parametrize("page", ["https://approve.example/x", None])
def test_a_wait_names_the_page_that_shows_it_where_there_is_one(page):
    waiting = Waiting(identity=IDENTITY, approval_id="apr_1", reason="Why.", expires_at=0.5)
    answer = answers.waiting(waiting, (), "somebody", page)
    assert details(answer).get("approval_page") == page
    assert (f" {page} " in answer.content[0].text) is (page is not None)


def test_an_unknown_end_does_not_invite_a_second_run():
    answer = answers.unfinished(Queued(identity=IDENTITY), 60.0)
    assert "not known" in answer.content[0].text
    assert not details(answer)["retryable"]


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [
        (QueueUnavailable("Redis does not answer.", advice="Start it."), True),
        (StorageUnavailable("The database refused: disk full.", advice="Make room."), True),
        (InvalidInput("workspace.read", "/limit", "an integer"), False),
    ],
)
def test_what_could_not_be_taken_says_what_to_do(fault, retryable):
    answer = answers.refused(fault)
    text = answer.content[0].text
    assert (answer.is_error, fault.message in text, fault.advice() in text, fault.code in text) == (True,) * 4
    assert ("may succeed later" in text, details(answer)["retryable"]) == (retryable, retryable)


def test_what_differs_from_its_preview_is_told_to_programs_too():
    result = ToolResult(text="out", structured={"a": 1}, differs=("another stdout",))
    answer = answers.finished(Finished(identity=IDENTITY, result=result), None)
    assert (details(answer)["differs_from_preview"], answer.structured_content) == (["another stdout"], {"a": 1})
