"""The end of a call that ran where nobody can ask any more: one result, whatever became of it."""

from __future__ import annotations

from codesdk.domain.execution import SandboxSummary
from codesdk.domain.tools import ToolResult
from codesdk.eventlog.log import Log
from codesdk.storage.writer import Unit
from codesdk.toolcalls import lost_store
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.stored import Claimed, StoredCall

CODE = "WORKER_LOST"
NOBODYS = 0
"""A generation that no worker has: theirs begin with 1."""


def end_lost(unit: Unit, log: Log, stored: StoredCall, text: str) -> None:
    """End a running call, taken from whatever worker holds it; `text` says what is known of it.

    Raises:
        IllegalTransition: it has ended.
    """
    identity = stored.identity
    started = lost_store.start_of(unit.connection, stored.subject.session_id, identity.tool_call_id)
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
