"""Deferred approvals: a worker first fingerprints the files that a call names (ADR 21), or tries the call (ADR 30).

Only a worker reaches a sandbox. The unit that records the call notes that its approval is deferred; the worker of its
host fingerprints the files or runs the call in a copy of the workspace; the unit that stores the result asks people.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from codesdk.domain.calls import CallState, DenialCode, ToolCall
from codesdk.domain.decisions import Decision, Effect, Obligations
from codesdk.domain.ids import ApprovalId, IdKind, Ids, SandboxId, ToolCallId
from codesdk.domain.payloads import ApprovalPreviewed, ApprovalPreviewStarted
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.registry import RegistryProvider, Tool, UnknownTool
from codesdk.sandbox.port import FileFingerprint, NamedPath
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval import store as deferrals
from codesdk.toolcalls.approval.bound_files import bound_files_value, named_files
from codesdk.toolcalls.approval.flow import DEFERRAL_TIMEOUT_S, ApprovalFlow, waiting_for_deferred
from codesdk.toolcalls.approval.scripts import script_paths
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.previews.preview import Preview, PreviewResult, obligations_hash, wants_preview
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, SessionFacts, Waiting


class Deferral(NamedTuple):
    """What a worker must do before people are asked about a call."""

    files: bool = False
    """Fingerprint the files that it names."""
    preview: bool = False
    """Run it in a copy of the workspace."""

    @classmethod
    def of(cls, call: ToolCall, tool: Tool, decision: Decision) -> Deferral:
        """What that decision takes."""
        if decision.effect is not Effect.ASK:
            return cls()
        return cls(files=bool(named_files(tool, call.input)), preview=wants_preview(tool, decision))


class DryRunPlan(NamedTuple):
    """What a dry run runs."""

    tool: Tool
    obligations: Obligations
    """What policy demands of the run."""


class DeferredApprovals:
    """Defers approvals, and requests them once a worker has done its part. Safe to use from any thread."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        decisions: CallDecisions,
        approvals: ApprovalFlow,
        log: EventLog,
        writer: Writer,
        wakeups: Wakeups,
        ids: Ids,
    ) -> None:
        self._registry = registry
        self._decisions = decisions
        self._approvals = approvals
        self._log = log
        self._writer = writer
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
        """Request approval at once, or defer it until the worker has done what `deferral` takes. Inside a unit."""
        if not deferral.files and not deferral.preview:
            return self._approvals.ask(unit, call, tool, decision, facts)
        approval = ApprovalId(self._ids.new(IdKind.APPROVAL))
        deferrals.defer(unit.connection, call.identity.tool_call_id, approval, preview=deferral.preview)
        unit.after_commit(lambda: self._wakeups.wake(facts.host_id, facts.subject.session_id))
        return waiting_for_deferred(store.lock(unit.connection, call.identity.tool_call_id))

    def named_files(self, stored: CallRecord) -> tuple[NamedPath, ...]:
        """The files that a call names; none if its tool is gone, which `put` answers."""
        tool = self._tool(stored)
        return named_files(tool, stored.call.input) if tool is not None else ()

    def trial(self, stored: CallRecord) -> DryRunPlan | None:
        """How to try a call under the rules and tools of now; None if that isn't wanted (any more)."""
        tool = self._tool(stored)
        if tool is None:
            return None
        decision = self._decisions.by_policy(stored.call, tool, stored.subject)
        return DryRunPlan(tool, decision.obligations) if wants_preview(tool, decision) else None

    def begin_dry_run(self, unit: Unit, stored: CallRecord, sandbox: SandboxId) -> bool:
        """Count and log a dry run, in the unit that records its sandbox. False: the call ended meanwhile."""
        held = store.lock(unit.connection, stored.identity.tool_call_id)
        if held.state is not CallState.WAITING or held.preparing is None:
            return False
        deferrals.count_dry_run(unit.connection, stored.identity.tool_call_id)
        begun = ApprovalPreviewStarted(
            approval_id=held.preparing,
            tool_call_id=stored.identity.tool_call_id,
            sandbox_id=sandbox,
            number=(held.preview_tries or 0) + 1,
        )
        self._log.append(unit, call_events.draft(held.subject, begun))
        return True

    def refund_dry_run(self, call: ToolCallId) -> None:
        """Don't count a dry run that a stopping worker gave up."""
        self._writer.run(lambda unit: deferrals.refund_dry_run(unit.connection, call))

    def script_paths(self, stored: CallRecord) -> tuple[str, ...]:
        """The scripts that a call runs, as it names them; none if its tool is gone."""
        tool = self._tool(stored)
        return script_paths(tool, stored.call.input) if tool is not None else ()

    def put(
        self,
        call: ToolCallId,
        files: tuple[FileFingerprint, ...],
        tried: PreviewResult | None = None,
        scripts: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Request the deferred approval, now that the worker has done its part. Decides once more.

        `tried`: the dry run. If rules want one and it's missing, or was made under other obligations, the approval waits
        for another. `scripts`: what people are shown of scripts among the files. Does nothing if the call ended or was
        put already.
        """
        self._writer.run(lambda unit: self._put(unit, call, files, tried, scripts))

    def expire_overdue(self) -> int:
        """Deny the calls for which no worker did its part in time; returns how many."""
        with self._log.database.read() as connection:
            overdue = deferrals.find_overdue(connection, DEFERRAL_TIMEOUT_S)
        return sum(self._writer.run(partial(self._expire, call=each.identity.tool_call_id)) for each in overdue)

    def _put(
        self,
        unit: Unit,
        call: ToolCallId,
        files: tuple[FileFingerprint, ...],
        tried: PreviewResult | None,
        scripts: Sequence[dict[str, Any]],
    ) -> None:
        stored = store.lock(unit.connection, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return  # it ended meanwhile, or another thread was first
        tool = self._tool(stored)
        if tool is None:
            deny(unit, self._log, stored, DenialCode.VOIDED, f"The tool {stored.call.name} is gone.")
            return
        session = stored.subject.session_id
        decision = self._decisions.decide(
            unit, stored.call, tool, stored.subject, stored.session_facts, check_lost=True
        ).decision
        # Read again: the session may have been closed while the lock was awaited.
        facts = store.session_facts(unit.connection, session)
        if decision.effect is not Effect.ASK or facts is None or not facts.open:
            reason = "Policy or session have changed since this call was decided. Call it again."
            deny(unit, self._log, stored, DenialCode.VOIDED, reason)
            return
        preview = tried.preview if tried else None
        if wants_preview(tool, decision) and (
            preview is None or preview.obliged != obligations_hash(tool, decision.obligations)
        ):
            deferrals.request_dry_run(unit.connection, call)
            return  # the next poll tries it
        deferrals.finish(unit.connection, call, files, preview)
        if preview is not None:
            tried_event = call_events.draft(stored.subject, _preview_event(stored, stored.preparing, preview))
            self._log.append(unit, tried_event, row_bytes=len(preview.model_dump_json().encode()))
        self._approvals.ask(
            unit,
            stored.call,
            tool,
            decision,
            facts,
            bound=bound_files_value(files),
            tried=tried,
            scripts=scripts,
            approval=stored.preparing,
        )

    def _expire(self, unit: Unit, call: ToolCallId) -> bool:
        """Deny one call. False: its worker was quicker, or it ended."""
        stored = store.lock(unit.connection, call)
        if stored.state is not CallState.WAITING or stored.preparing is None:
            return False
        what = (
            "looked at the files that this call names" if stored.preview_tries is None else "tried this call in a copy"
        )
        reason = f"No worker has {what}, so nobody was asked. It was not rejected."
        deny(unit, self._log, stored, DenialCode.EXPIRED, reason)
        return True

    def _tool(self, stored: CallRecord) -> Tool | None:
        try:
            return self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None


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
