"""A call that ran where nobody can ask any more: one more attempt where it only reads, else one end."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.domain.execution import SandboxSummary
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.registry import Tool, UnknownTool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall
from codesdk.toolcalls.records.store import UNOWNED
from codesdk.toolcalls.retries import store as retry_store
from codesdk.toolcalls.retries.retry import NextAttempt, Retries

WORKER_LOST = "WORKER_LOST"


class Loss(NamedTuple):
    """How an attempt was lost."""

    what: str
    """In a sentence."""
    code: str = WORKER_LOST
    can_return: bool = True
    """False: what it ran in has ended for good, so nothing can be tried again there."""


class LostAttempts:
    """Ends lost attempts, each in one unit."""

    def __init__(self, log: EventLog, attempts: Retries) -> None:
        self._log = log
        self._attempts = attempts

    def end(
        self,
        unit: Unit,
        claimed: ClaimedCall,
        loss: Loss,
        *,
        last_output: tuple[EventDraft, ...] = (),
        duration_ms: float = 0.0,
    ) -> ToolResult:
        """The end of that attempt; where the call only reads, and may, the next one begins in the same unit.

        Raises:
            IllegalTransition: it is not this worker's any more; nothing is written.
        """
        identity = claimed.stored.identity
        stored = store.find(unit.connection, identity.tool_call_id, hold=True) or claimed.stored
        tool = self._tool(stored)
        only_reads = stored.only_reads(tool)
        next_attempt = (
            self._next_attempt(unit, stored, tool, loss) if only_reads and stored.identity == identity else ""
        )
        result = ToolResult(
            text=f"{loss.what} {_what_follows(next_attempt, only_reads=only_reads)}", is_error=True, code=loss.code
        )
        complete(
            unit,
            self._log,
            claimed,
            result,
            result_ref=None,
            last_output=last_output,
            duration_ms=duration_ms,
            is_indeterminate_outcome=not only_reads,
        )
        if isinstance(next_attempt, NextAttempt):
            self._attempts.begin(unit, stored, next_attempt)
        return result

    def _tool(self, stored: CallRecord) -> Tool | None:
        try:
            return self._attempts.registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None

    def _next_attempt(self, unit: Unit, stored: CallRecord, tool: Tool | None, loss: Loss) -> NextAttempt | str:
        if tool is None or not loss.can_return:
            return "there is nothing to run it on"
        return self._attempts.next_attempt(unit, stored, tool)


def _what_follows(next_attempt: NextAttempt | str, *, only_reads: bool) -> str:
    if isinstance(next_attempt, NextAttempt):
        return f"It only reads, so it is run again, as attempt {next_attempt.call.identity.attempt}."
    if only_reads:
        return f"It only reads, and was not run again: {next_attempt}."
    return (
        "Whether it took effect is unknown, and it was not run again. Look at the workspace before you repeat it; "
        "a person is asked about the same call, where the session's mode asks anybody."
    )


def end_lost(unit: Unit, log: EventLog, stored: CallRecord, text: str) -> None:
    """End a running call of a session that ends with it, taken from whatever worker holds it; `text`: all that is known.

    Raises:
        IllegalTransition: it has ended.
    """
    identity = stored.identity
    started = retry_store.latest_payload(
        unit.connection, stored.subject.session_id, identity.tool_call_id, "tool.call.started"
    )
    retry_store.adopt(unit.connection, identity.tool_call_id, UNOWNED)
    claimed = ClaimedCall(
        stored=stored,
        generation=UNOWNED,
        timeout_s=0.0,
        sandbox=SandboxSummary.model_validate(started.get("sandbox", {})),
        environment=started.get("execution_env", "codesdk_docker"),
    )
    result = ToolResult(text=text, is_error=True, code=WORKER_LOST)
    complete(unit, log, claimed, result, result_ref=None, last_output=(), duration_ms=0.0)
