"""Describes the state or outcome of a call in a sentence for people. Pure."""

from __future__ import annotations

from codesdk.domain.calls import CallState
from codesdk.domain.tool_results import ToolResult
from codesdk.toolcalls.ending import NOT_RUN_CODES

_RUNNING = {
    CallState.WAITING: "The call waits for approval.",
    CallState.QUEUED: "The call waits for a worker.",
    CallState.RUNNING: "The call is running.",
}


def describe_call(state: CallState, result: ToolResult | None) -> str:
    """The state of a call, and of an ended one how it ended."""
    if state in _RUNNING:
        return _RUNNING[state]
    if state is CallState.DENIED or (result is not None and result.code in NOT_RUN_CODES):
        return f"The call did not run. {result.text if result else ''}".strip()
    if result is None:
        return "The call has ended."
    code = (result.structured or {}).get("exit_code")
    if isinstance(code, int):
        return f"The call ran and ended with exit code {code}."
    return f"The call ran and failed ({result.code})." if result.is_error else "The call ran and succeeded."
