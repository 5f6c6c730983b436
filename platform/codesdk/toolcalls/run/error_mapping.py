"""What is said of a call where its run, or the record of it, went wrong from the outside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault, InternalFault
from codesdk.registry import InvalidOutput
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable, RunnerSilent, SandboxGone
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.ending import fits_in_event
from codesdk.toolcalls.records import call_events
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.toolcalls.retries.lost_calls import Loss
from codesdk.toolcalls.run.acquire import NotStarted
from codesdk.toolcalls.run.sources import ServerLost, ServerSilent

_log = logging.getLogger(__name__)
T = TypeVar("T")
LOST_FAULTS = (SandboxGone, EngineUnavailable, ServerLost)
"""What had begun there may have run, whole or in part; nobody can ask any more."""


class Released(Fault):
    """The worker lets go of a call that it has not begun; the next one takes it up."""

    code = "RELEASED"
    retryable = True
    status = 503


def loss_from_fault(fault: Fault, *, can_return: bool) -> Loss:
    """How a call was lost, by what it met."""
    if isinstance(fault, ServerLost):
        return Loss(fault.message, fault.code)
    return Loss(f"The sandbox was lost while this ran: {fault.message}", can_return=can_return)


def is_indeterminate(fault: Fault, *, opened: bool, sent: bool) -> bool:
    """Whether what met it may have taken effect, or may yet: a frozen sandbox does what it was asked when it goes on.

    `opened`: its sandbox may have been asked; `sent`: a server was, whose own faults are answers, silence is none.
    """
    # Of these the first comes after a known end, the others before anything was changed: output waits for the database.
    is_known = isinstance(fault, (InvalidOutput, StorageUnavailable, CallCancelled))
    return (opened and not is_known) or (sent and isinstance(fault, (InternalFault, ServerSilent)))


def fault_result(fault: Fault) -> ToolResult:
    """The result of a call that met that fault and was not lost by it."""
    if isinstance(fault, ServerSilent):
        text = f"{fault.message} Whether it took effect is unknown. Look before you repeat it."
        return ToolResult(text=text, is_error=True, code=fault.code)
    if isinstance(fault, (NotStarted, RunnerSilent, CallCancelled)):
        return ToolResult(text=str(fault), is_error=True, code=fault.code)
    text = f"{fault} Its log says more." if isinstance(fault, InternalFault) else f"The sandbox failed: {fault}"
    return ToolResult(text=text, is_error=True, code=fault.code)


def without_artifacts(result: ToolResult, refused: Fault) -> ToolResult:
    """The result where its artifacts could not be kept: what an event can hold, and that the rest is lost."""
    note = f"[… what did not fit here was not kept: {refused} …]"
    if fits_in_event(result):
        return result.model_copy(update={"text": f"{result.text}\n{note}"})
    begin = result.text[
        : call_events.INLINE_RESULT_BYTES // 8
    ]  # characters, of which JSON makes at most six bytes each
    cut = {"text": f"{begin}\n{note}", "structured": None, "is_error": True, "code": refused.code}
    return result.model_copy(update=cut)


def capture_fault(claimed: ClaimedCall, what: str, work: Callable[[], T]) -> T | Fault:
    """What the work returns, or the fault that it ended with; a defect is logged, and is an `InternalFault` here.

    A claim that never ends would hold its workspace until the worker restarts: so nothing passes.
    """
    try:
        return work()
    except Fault as fault:
        return fault
    except Exception:  # noqa: BLE001 (see above)
        _log.exception("a defect: call %s did not %s", claimed.stored.identity.tool_call_id, what)
        return InternalFault(f"CodeSDK failed to {what} this call; whether it took effect is unknown.")
