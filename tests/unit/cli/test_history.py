"""Folding a log into its calls."""

from __future__ import annotations

import pytest

from codesdk.cli.logs.history import Evaluation, SequenceGap, fold
from codesdk.cli.logs.history_table import decision, rules
from codesdk.domain.events import Event

CALL = {"tool_call_id": "call_1", "attempt": 1, "input_hash": "sha256:0", "name": "workspace.exec"}


def log(*entries: tuple[str, dict]) -> list[Event]:
    return [
        Event.model_validate(
            {
                "seq": number,
                "time": f"2026-01-01T00:00:{number:02}.000Z",
                "type": kind,
                "trace": {"session_id": "ses_1"},
                "runtime": {"name": "test"},
                "payload": {**CALL, **payload} if kind.startswith(("tool.", "approval.")) else payload,
            }
        )
        for number, (kind, payload) in enumerate(entries, 1)
    ]


ASKED = (
    ("session.created", {}),
    ("tool.call.requested", {"input": {"command": "chmod +x a"}}),
    ("tool.call.policy_evaluated", {"source": "codesdk", "result": "ask", "rule": "r", "reason": "why"}),
    ("approval.requested", {}),
)


def test_a_call_that_waits_is_told_as_waiting():
    (call,) = fold(log(*ASKED)).calls

    assert (call.name, call.state, call.total_ms) == ("workspace.exec", "waiting", None)


def test_an_approved_call_keeps_every_voice_and_its_end():
    (call,) = fold(
        log(
            *ASKED,
            ("tool.call.policy_evaluated", {"source": "user", "result": "allow"}),
            ("tool.call.approved", {}),
            ("tool.call.started", {}),
            ("tool.call.completed", {"is_error": False, "duration_ms": 7.5, "result_preview": "fine"}),
        )
    ).calls

    assert call.voices == (
        Evaluation(source="codesdk", result="ask", rule="r"),
        Evaluation(source="user", result="allow"),
    )
    assert (call.state, call.run_ms, call.total_ms, call.result) == ("completed", 7.5, 6000, "fine")
    assert (decision(call), rules(call)) == ("ask → user: allow", "r")


def test_a_denied_call_tells_its_code_and_reason():
    (call,) = fold(log(*ASKED, ("tool.call.denied", {"code": "REJECTED_BY_APPROVER", "reason": "No."}))).calls

    assert (call.state, call.code, call.reason) == ("denied", "REJECTED_BY_APPROVER", "No.")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_log_with_a_gap_is_refused(missing):
    events = log(*ASKED)
    del events[missing]

    with pytest.raises(SequenceGap):
        fold(events)


def test_events_of_no_call_count_and_change_no_call():
    history = fold(log(("session.created", {}), ("sandbox.session_closed", {})))

    assert (history.calls, history.last_seq, history.closed) == ((), 2, True)
