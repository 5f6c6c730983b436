"""Calls about which nobody is asked yet.

A person must see what the files hold that they name (ADR 21), or what they do in a copy of the workspace (ADR 30).
Only a worker reaches a sandbox. So the unit that records the call notes that its question waits, the worker of its host
looks at the files or tries the call, and the question is put in the unit that keeps what was found.
"""

from __future__ import annotations

from typing import NamedTuple

from codesdk.domain.calls import CallState, DenialCode, ToolCall
from codesdk.domain.decisions import Decision, Effect, Obligations
from codesdk.domain.ids import ApprovalId, IdKind, Ids, SandboxId, ToolCallId
from codesdk.domain.payloads import ApprovalPreviewed, ApprovalPreviewStarted
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.policy import BundleProvider, decide
from codesdk.registry import RegistryProvider, Tool, UnknownTool
from codesdk.sandbox.port import FileFingerprint
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.toolcalls.approval import deferral_store
from codesdk.toolcalls.approval.bound_files import bound_files_value
from codesdk.toolcalls.approval.flow import DEFERRAL_TIMEOUT_S, ApprovalFlow, waiting_for_deferred
from codesdk.toolcalls.decision import indeterminate
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.previews.preview import Preview, PreviewResult, obligations_hash, wants_preview
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, SessionFacts, Waiting


class Deferral(NamedTuple):
    """What must be seen before anybody is asked."""

    files: bool
    preview: bool


class DryRunPlan(NamedTuple):
    """What is to be tried."""

    tool: Tool
    obligations: Obligations
    """What policy demands of the run."""


class DeferredApprovals:
    """Puts questions off, and puts them. Its methods with a unit run inside that."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        questions: ApprovalFlow,
        log: EventLog,
        wakeups: Wakeups,
        ids: Ids,
    ) -> None:
        self._registry = registry
        self._bundles = bundles
        self._questions = questions
        self._log = log
        self._wakeups = wakeups
        self._ids = ids

    def ask(
        self,
        unit: Unit,
        call: ToolCall,
        tool: Tool,
        decision: Decision,
        facts: SessionFacts,
        *,
        deferral: Deferral,
    ) -> Waiting | Denied:
        """Ask at once, or let the question about a call that names files, or is to be tried, wait for its worker."""
        if not deferral.files and not deferral.preview:
            return self._questions.ask(unit, call, tool, decision, facts)
        approval = ApprovalId(self._ids.new(IdKind.APPROVAL))
        deferral_store.defer(unit.connection, call.identity.tool_call_id, approval, preview=deferral.preview)
        unit.after_commit(lambda: self._wakeups.wake(facts.host_id, facts.subject.session_id))
        return waiting_for_deferred(_lock_call(unit, call.identity.tool_call_id))

    def trial(self, stored: CallRecord) -> DryRunPlan | None:
        """How the call is to be tried, as rules and tools are now; None where nobody wants that (any more)."""
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None
        decision = self._decide(stored, tool)
        return DryRunPlan(tool, decision.obligations) if wants_preview(tool, decision) else None

    def begin_dry_run(self, unit: Unit, stored: CallRecord, sandbox: SandboxId) -> bool:
        """Count it and tell of it, in the unit that makes the copy's row. False: the call ended meanwhile."""
        held = _lock_call(unit, stored.identity.tool_call_id)
        if held.state is not CallState.WAITING or held.preparing is None:
            return False
        deferral_store.count_dry_run(unit.connection, stored.identity.tool_call_id)
        begun = ApprovalPreviewStarted(
            approval_id=held.preparing,
            tool_call_id=stored.identity.tool_call_id,
            sandbox_id=sandbox,
            number=(held.preview_tries or 0) + 1,
        )
        self._log.append(unit, call_events.draft(held.subject, begun))
        return True

    def refund_dry_run(self, unit: Unit, call: ToolCallId) -> None:
        """A worker that stops gave it up: the next one begins it anew, as often as if it had not been begun."""
        deferral_store.refund_dry_run(unit.connection, call)

    def put(
        self, unit: Unit, call: ToolCallId, files: tuple[FileFingerprint, ...], tried: PreviewResult | None = None
    ) -> None:
        """Ask, now that a worker has looked. Decided once more: rules, tool and session may be others by now.

        `tried`: what came of the call in a copy. Where rules want that and it is not there, or was made under other
        demands than theirs, the question waits for it.
        """
        stored = _lock_call(unit, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return  # it ended meanwhile, or another thread was first
        preview = tried.preview if tried else None
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            deny(unit, self._log, stored, DenialCode.VOIDED, f"The tool {stored.call.name} is gone.")
            return
        decision = indeterminate.require_approval_if_indeterminate(
            unit.connection, stored.call, tool, stored.subject, self._decide(stored, tool)
        )
        facts = store.session_facts(unit.connection, stored.subject.session_id)
        if decision.effect is not Effect.ASK or facts is None or not facts.open:
            reason = "Policy or session have changed since this call was decided. Call it again."
            deny(unit, self._log, stored, DenialCode.VOIDED, reason)
            return
        if wants_preview(tool, decision) and (
            preview is None or preview.obliged != obligations_hash(tool, decision.obligations)
        ):
            deferral_store.request_dry_run(unit.connection, call)
            return  # the next poll tries it
        deferral_store.finish(unit.connection, call, files, preview)
        if preview is not None:
            self._log.append(unit, call_events.draft(stored.subject, _preview_event(stored, stored.preparing, preview)))
        self._questions.ask(
            unit,
            stored.call,
            tool,
            decision,
            facts,
            bound=bound_files_value(files),
            tried=tried,
            approval=stored.preparing,
        )

    def find_expired(self, database: Database) -> list[CallRecord]:
        """Those that no worker has looked at in time."""
        with database.read() as connection:
            return deferral_store.find_overdue(connection, DEFERRAL_TIMEOUT_S)

    def expire(self, unit: Unit, call: ToolCallId) -> bool:
        """Deny one of them. False: a worker has looked at it, or it ended."""
        stored = _lock_call(unit, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return False
        what = (
            "looked at the files that this call names" if stored.preview_tries is None else "tried this call in a copy"
        )
        reason = f"No worker has {what}, so nobody was asked. It was not rejected."
        deny(unit, self._log, stored, DenialCode.EXPIRED, reason)
        return True

    def _decide(self, stored: CallRecord, tool: Tool) -> Decision:
        subject = stored.subject
        return decide(stored.call, tool, subject, self._bundles.of(subject.tenant_id, subject.policy_hash))


def _preview_event(stored: CallRecord, approval: ApprovalId, preview: Preview) -> ApprovalPreviewed:
    ending = preview.ending
    return ApprovalPreviewed(
        approval_id=approval,
        tool_call_id=stored.identity.tool_call_id,
        preview_hash=preview.shown_hash,
        failed=preview.failed or None,
        is_error=ending.is_error if ending else None,
        exit_code=ending.exit_code if ending else None,
        changes=preview.effects_count if ending else None,
    )


def _lock_call(unit: Unit, call: ToolCallId) -> CallRecord:
    stored = store.find(unit.connection, call, hold=True)
    assert stored is not None  # noqa: S101 (a foreign key, or inserted in this unit)
    return stored
