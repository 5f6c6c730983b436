"""Maps faults of a run to results: what failed outside the tool, and whether it may have had side effects."""

from __future__ import annotations

from typing import Any

from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault, InternalFault
from codesdk.registry import InvalidOutput
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable, RunnerSilent, SandboxGone
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.ending import fits_in_event
from codesdk.toolcalls.records import call_events
from codesdk.toolcalls.retries.lost_calls import Loss
from codesdk.toolcalls.run.acquire import NotStarted
from codesdk.toolcalls.run.sources import ServerLost, ServerSilent

LOST_FAULTS = (SandboxGone, EngineUnavailable, ServerLost)
"""A call that met one of these may have run, in whole or in part."""


class CallReleased(Fault):
    """A leaving worker hands over a call that it has not started."""

    code = "RELEASED"
    retryable = True
    status = 503


def loss_from_fault(fault: Fault, *, can_return: bool) -> Loss:
    """How a call was lost."""
    if isinstance(fault, ServerLost):
        return Loss(fault.message, fault.code)
    return Loss(f"The sandbox was lost while this ran: {fault.message}", can_return=can_return)


def is_indeterminate(fault: Fault, *, opened: bool, sent: bool) -> bool:
    """Whether the call may have had side effects, or may yet: a frozen sandbox goes on when it thaws.

    `opened`: its sandbox may have been asked; `sent`: an MCP server was asked. A server's faults are answers; silence isn't.
    """
    # InvalidOutput follows a known end; the others come before anything changed, since output waits for the database.
    is_known = isinstance(fault, (InvalidOutput, StorageUnavailable, CallCancelled))
    return (opened and not is_known) or (sent and isinstance(fault, (InternalFault, ServerSilent)))


def fault_result(fault: Fault) -> ToolResult:
    """The result of a call that failed with that fault and wasn't lost."""
    if isinstance(fault, ServerSilent):
        text = f"{fault.message} Whether it took effect is unknown. Look before you repeat it."
        return ToolResult(text=text, is_error=True, code=fault.code)
    if isinstance(fault, (NotStarted, RunnerSilent, CallCancelled)):
        return ToolResult(text=str(fault), is_error=True, code=fault.code)
    text = f"{fault} Its log says more." if isinstance(fault, InternalFault) else f"The sandbox failed: {fault}"
    return ToolResult(text=text, is_error=True, code=fault.code)


def without_artifacts(result: ToolResult, refused: Fault) -> ToolResult:
    """The result without artifacts that could not be stored: what an event holds, and a note."""
    note = f"[… what did not fit here was not kept: {refused} …]"
    if fits_in_event(result):
        return result.model_copy(update={"text": f"{result.text}\n{note}"})
    begin = result.text[:_EXCERPT_CHARS]
    cut = {
        "text": f"{begin}\n{note}",
        "structured": _cut_texts(result.structured),
        "is_error": True,
        "code": refused.code,
    }
    return result.model_copy(update=cut)


_EXCERPT_CHARS = call_events.INLINE_RESULT_BYTES // 8
"""Characters kept of a text that an event can't hold. JSON makes at most six bytes of each."""


def _cut_texts(structured: dict[str, Any] | None) -> dict[str, Any] | None:
    """The structured result with the beginnings of its texts: a command's exit code is kept. None if that is too large."""
    if structured is None:
        return None
    cut = {key: value[: _EXCERPT_CHARS // 2] if isinstance(value, str) else value for key, value in structured.items()}
    if "truncated" in cut:
        cut["truncated"] = True
    return cut if fits_in_event(ToolResult(text="", structured=cut)) else None
