"""A call that ran where nobody can ask any more: one more attempt where it only reads, else one end."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.domain.execution import SandboxSummary
from codesdk.domain.tools import ToolResult
from codesdk.eventlog.log import Draft, Log
from codesdk.registry import Tool, UnknownTool
from codesdk.storage.writer import Unit
from codesdk.toolcalls import lost_store, store
from codesdk.toolcalls.attempts import Attempts, Further
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.held import NOBODYS
from codesdk.toolcalls.stored import Claimed, StoredCall

CODE = "WORKER_LOST"


class Loss(NamedTuple):
    """How an attempt was lost."""

    what: str
    """In a sentence."""
    code: str = CODE
    can_return: bool = True
    """False: what it ran in has ended for good, so nothing can be tried again there."""


class Losses:
    """Ends lost attempts, each in one unit."""

    def __init__(self, log: Log, attempts: Attempts) -> None:
        self._log = log
        self._attempts = attempts

    def end(
        self, unit: Unit, claimed: Claimed, loss: Loss, *, last_output: tuple[Draft, ...] = (), duration_ms: float = 0.0
    ) -> ToolResult:
        """The end of that attempt; where the call only reads, and may, the next one begins in the same unit.

        Raises:
            IllegalTransition: it is not this worker's any more; nothing is written.
        """
        identity = claimed.stored.identity
        stored = store.find(unit.connection, identity.tool_call_id, hold=True) or claimed.stored
        tool = self._tool(stored)
        only_reads = stored.only_reads(tool)
        further = self._further(unit, stored, tool, loss) if only_reads and stored.identity == identity else ""
        result = ToolResult(text=f"{loss.what} {_then(further, only_reads=only_reads)}", is_error=True, code=loss.code)
        complete(
            unit,
            self._log,
            claimed,
            result,
            result_ref=None,
            last_output=last_output,
            duration_ms=duration_ms,
            in_doubt=not only_reads,
        )
        if isinstance(further, Further):
            self._attempts.begin(unit, stored, further)
        return result

    def _tool(self, stored: StoredCall) -> Tool | None:
        try:
            return self._attempts.registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None

    def _further(self, unit: Unit, stored: StoredCall, tool: Tool | None, loss: Loss) -> Further | str:
        if tool is None or not loss.can_return:
            return "there is nothing to run it on"
        return self._attempts.further(unit, stored, tool)


def _then(further: Further | str, *, only_reads: bool) -> str:
    if isinstance(further, Further):
        return f"It only reads, so it is run again, as attempt {further.call.identity.attempt}."
    if only_reads:
        return f"It only reads, and was not run again: {further}."
    return (
        "Whether it took effect is unknown, and it was not run again. Look at the workspace before you repeat it; "
        "a person is asked about the same call, where the session's mode asks anybody."
    )


def end_lost(unit: Unit, log: Log, stored: StoredCall, text: str) -> None:
    """End a running call of a session that ends with it, taken from whatever worker holds it; `text`: all that is known.

    Raises:
        IllegalTransition: it has ended.
    """
    identity = stored.identity
    started = lost_store.said_of(unit.connection, stored.subject.session_id, identity.tool_call_id, "tool.call.started")
    lost_store.adopt(unit.connection, identity.tool_call_id, NOBODYS)
    claimed = Claimed(
        stored=stored,
        generation=NOBODYS,
        timeout_s=0.0,
        sandbox=SandboxSummary.model_validate(started.get("sandbox", {})),
        environment=started.get("execution_env", "codesdk_docker"),
    )
    result = ToolResult(text=text, is_error=True, code=CODE)
    complete(unit, log, claimed, result, result_ref=None, last_output=(), duration_ms=0.0)
