"""Calls about which nobody is asked yet: they name files, and a person must see what these hold (ADR 18).

Only a worker reaches a sandbox. So the unit that records the call notes that its question waits, the worker of its host
looks at the files, and the question is put in the unit that keeps what was found.
"""

from __future__ import annotations

from codesdk.domain.calls import CallState, DenialCode, ToolCall
from codesdk.domain.decisions import Effect
from codesdk.domain.ids import ApprovalId, Ids, Kind, ToolCallId
from codesdk.eventlog.log import Log
from codesdk.jobs import Wakeups
from codesdk.policy import Bundles, decide
from codesdk.registry import Registries, UnknownTool
from codesdk.sandbox.port import FileMark
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.toolcalls import preparations, store
from codesdk.toolcalls.bound_files import files_of
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.questions import PATIENCE_S, Questions, unasked
from codesdk.toolcalls.stored import SessionFacts, StoredCall, Waiting


class Unasked:
    """Puts questions off, and puts them. Its methods with a unit run inside that."""

    def __init__(
        self, *, registry: Registries, bundles: Bundles, questions: Questions, log: Log, wakeups: Wakeups, ids: Ids
    ) -> None:
        self._registry = registry
        self._bundles = bundles
        self._questions = questions
        self._log = log
        self._wakeups = wakeups
        self._ids = ids

    def begin(self, unit: Unit, call: ToolCall, facts: SessionFacts) -> Waiting:
        """Let the question about a call that names files wait for its worker."""
        approval = ApprovalId(self._ids.new(Kind.APPROVAL))
        preparations.begin(unit.connection, call.identity.tool_call_id, approval)
        unit.after_commit(lambda: self._wakeups.wake(facts.host_id, facts.subject.session_id))
        return unasked(_held(unit, call.identity.tool_call_id))

    def put(self, unit: Unit, call: ToolCallId, files: tuple[FileMark, ...]) -> None:
        """Ask, now that a worker has looked. Decided once more: rules, tool and session may be others by now."""
        stored = _held(unit, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return  # it ended meanwhile, or another thread was first
        preparations.end(unit.connection, call, files)
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            deny(unit, self._log, stored, DenialCode.VOIDED, f"The tool {stored.call.name} is gone.")
            return
        subject = stored.subject
        decision = decide(stored.call, tool, subject, self._bundles.of(subject.tenant_id, subject.policy_hash))
        facts = store.session_facts(unit.connection, stored.subject.session_id)
        if decision.effect is not Effect.ASK or facts is None or not facts.open:
            reason = "Policy or session have changed since this call was decided. Call it again."
            deny(unit, self._log, stored, DenialCode.VOIDED, reason)
            return
        bound = files_of(files)
        self._questions.ask(unit, stored.call, tool, decision, facts, bound=bound, approval=stored.preparing)

    def left(self, database: Database) -> list[StoredCall]:
        """Those that no worker has looked at in time."""
        with database.read() as connection:
            return preparations.left_for(connection, PATIENCE_S)

    def expire(self, unit: Unit, call: ToolCallId) -> bool:
        """Deny one of them. False: a worker has looked at it, or it ended."""
        stored = _held(unit, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return False
        reason = "No worker has looked at the files that this call names, so nobody was asked. It was not rejected."
        deny(unit, self._log, stored, DenialCode.EXPIRED, reason)
        return True


def _held(unit: Unit, call: ToolCallId) -> StoredCall:
    stored = store.find(unit.connection, call, hold=True)
    assert stored is not None  # noqa: S101 (a foreign key, or inserted in this unit)
    return stored
