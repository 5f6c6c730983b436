"""The worker takes a call: judged again, its approval used up, `approved` and `started` in one transaction."""

from __future__ import annotations

from codesdk.approvals import Approval, ApprovalService, ApprovalState
from codesdk.domain.calls import CallIdentity, CallState, DenialCode
from codesdk.domain.decisions import UNREDACTED, Decision, Effect
from codesdk.domain.ids import ApprovalId, GrantId, HostId, TenantId
from codesdk.domain.quotas import QuotaExceeded, Quotas, Resource
from codesdk.eventlog.log import EventLog
from codesdk.hosts import store as host_store
from codesdk.policy import BundleProvider, decide
from codesdk.registry import RegistryProvider, Tool, ToolWithheld, UnknownTool
from codesdk.sandbox.port import ExecutionEnvironment
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.bound_files import bound_files_value
from codesdk.toolcalls.approval.digest import approval_digest, grant_query_for
from codesdk.toolcalls.decision import indeterminate
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.queue import fair_queue, fair_queue_store
from codesdk.toolcalls.queue.tenant_concurrency import TenantConcurrency
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall, Denied, SessionFacts

CONTAINER = ExecutionEnvironment()


class Claims:
    """Takes the calls of one host."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        desk: ApprovalService,
        log: EventLog,
        writer: Writer,
        host: HostId,
        generation: int,
        quotas: Quotas[Unit],
        execution_environment: ExecutionEnvironment = CONTAINER,
        most_of_tenant: int = 0,
    ) -> None:
        """`generation`: the worker's fencing number, written into every claim; `execution_environment`: where it runs them.

        `most_of_tenant`: calls that one tenant has here at once, those counted that `release` was not told of; 0: no limit.
        """
        self._concurrency = TenantConcurrency(most_of_tenant)
        self._quotas = quotas
        self._surroundings = execution_environment
        self._registry = registry
        self._bundles = bundles
        self._desk = desk
        self._log = log
        self._writer = writer
        self._host = host
        self._generation = generation

    def any(self) -> bool:
        """Whether a call may start now: a read, for looks that mostly find nothing."""
        with self._log.database.read() as connection:
            return fair_queue_store.has_candidates(connection, self._host)

    def look_again(self) -> None:
        """Find tenants that no end of a call told of: their limit was raised, say."""
        with self._log.database.read() as connection:
            overlooked = fair_queue_store.has_missed_tenant(connection, self._host)
        if overlooked:
            self._writer.run(lambda unit: fair_queue_store.rescan(unit.connection, self._host))

    def take_up(self) -> None:
        """Once, when a worker starts: let go the calls that a version without turns left behind."""
        self._writer.run(lambda unit: fair_queue.release_legacy_holds(unit, self._host))

    def take(self) -> ClaimedCall | Denied | None:
        """The next call of this host. None: nothing may start now. Denied: it was taken off the queue unrun.

        Whoever runs it says when it has left.
        """
        entered: list[CallIdentity] = []
        taken = None
        try:
            taken = self._writer.run(lambda unit: self._take(unit, entered))
        finally:
            for call in entered:
                if not isinstance(taken, ClaimedCall) or call != taken.stored.identity:
                    self._concurrency.leave(call)
        return taken

    def leave(self, claimed: ClaimedCall) -> None:
        """It is not at this worker any more."""
        self._concurrency.leave(claimed.stored.identity)

    def _take(self, unit: Unit, entered: list[CallIdentity]) -> ClaimedCall | Denied | None:
        while entered:  # what this unit took when it was run before, and was undone
            self._concurrency.leave(entered.pop())
        stored = self._next_call(unit)
        if stored is None:
            return None
        # Here and not after the commit: the next claim of this group must see it.
        entered.append(stored.identity)
        self._concurrency.acquire(stored.identity, stored.tenant_id)
        asked = self._desk.of_call(unit, stored.identity) if stored.digest is not None else None
        if (barred := _blocked(stored)) is not None:
            return self._deny(unit, stored, asked, *barred)
        tool = self._tool(stored)
        if isinstance(tool, str):
            return self._deny(unit, stored, asked, DenialCode.VOIDED, tool)
        bundle = self._bundles.of(stored.subject.tenant_id, stored.subject.policy_hash)
        judged = decide(stored.call, tool, stored.subject, bundle)
        # Once more: the same call may have been lost while this one waited.
        decision = indeterminate.require_approval_if_indeterminate(
            unit.connection, stored.call, tool, stored.subject, judged
        )
        if stored.grant_id is not None and decision.effect is Effect.ASK and decision is judged:
            granted = decide(stored.call, tool, stored.subject, bundle, granted=decision.rules)
            return self._start_by_grant(unit, stored, tool, stored.grant_id, asks=decision, granted=granted)
        refusal = self._check_still_allowed(unit, stored, tool, decision, asked)
        if refusal is not None:
            return self._deny(unit, stored, asked, DenialCode.VOIDED if asked else DenialCode.POLICY, refusal)
        return self._start(unit, stored, tool, decision, approval=asked.id if asked else None)

    def _tool(self, stored: CallRecord) -> Tool | str:
        """The call's tool, or why there is none to call."""
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return f"The tool {stored.call.name} is gone."
        return ToolWithheld(tool.name, tool.withheld).message if tool.withheld else tool

    def _start_by_grant(
        self, unit: Unit, stored: CallRecord, tool: Tool, grant: GrantId, *, asks: Decision, granted: Decision
    ) -> ClaimedCall | Denied:
        """Start it if its grant lets it through still; one of its uses is counted with the start."""
        asked = grant_query_for(stored.call, tool, _session_facts(stored), asks)
        if granted.effect is Effect.ALLOW and self._desk.grants.use(unit, grant, asked):
            return self._start(unit, stored, tool, granted, grant=grant)
        reason = "The grant that let this call through does not any more. Call it again to ask."
        return self._deny(unit, stored, None, DenialCode.VOIDED, reason)

    def _next_call(self, unit: Unit) -> CallRecord | None:
        """The call of the tenant whose turn it is, if it may have one more running; else of the one after it."""
        if not host_store.is_current(unit.connection, self._host, self._generation):
            return None  # given up, or a newer worker's: whoever was frozen meanwhile starts nothing
        for turn in fair_queue.tenants_in_order(unit, self._host):
            if self._concurrency.is_full(turn.tenant):
                continue  # it keeps its mark: whichever of its calls ends here first, that thread takes the next
            stored = store.next_queued(unit.connection, self._host, turn.tenant)
            if stored is not None and self._has_room(unit, turn.tenant):
                fair_queue.mark_served(unit, self._host, turn)
                return stored
            fair_queue.mark_skipped(unit, self._host, turn)
        return None

    def _has_room(self, unit: Unit, tenant: TenantId) -> bool:
        try:
            self._quotas.reserve(unit, tenant, Resource.RUNNING_CALLS)
        except QuotaExceeded:
            return False  # it keeps its place; the end of one of its calls has it looked at again
        return True

    def _deny(self, unit: Unit, stored: CallRecord, asked: Approval | None, code: DenialCode, reason: str) -> Denied:
        if asked is not None:
            self._desk.end(unit, asked.id, ApprovalState.APPROVED, ApprovalState.VOIDED)
        return deny(unit, self._log, stored, code, reason)

    def _check_still_allowed(
        self, unit: Unit, stored: CallRecord, tool: Tool, decision: Decision, asked: Approval | None
    ) -> str | None:
        """Why what was decided before does not hold any more; consumes the approval where it does."""
        if decision.effect is Effect.DENY:
            return f"Policy has changed since this call was decided: {decision.reason}"
        if stored.schema_hash != tool.schema_hash:
            return "The tool has changed since this call was decided."
        if asked is None:
            return (
                f"This call asks now, which it did not when it was decided: {decision.reason}"
                if decision.effect is Effect.ASK
                else None
            )
        if decision.effect is Effect.ASK and _current_digest(stored, tool, decision) != asked.digest:
            known = decision.model_copy(update={"doubt": None})
            if decision.doubt is not None and _current_digest(stored, tool, known) == asked.digest:
                return (
                    "It was approved before the same call was lost, so nobody was asked about a repetition of what may "
                    f"have taken effect ({decision.doubt}). Look at what is there, and call it again to ask about that."
                )
            return "What was approved is not what would run now. Call it again to ask again."
        return None if self._desk.consume(unit, asked.id) else "The approval is not there any more."

    def _start(
        self,
        unit: Unit,
        stored: CallRecord,
        tool: Tool,
        decision: Decision,
        *,
        approval: ApprovalId | None = None,
        grant: GrantId | None = None,
    ) -> ClaimedCall:
        profile = Profile.model_validate(stored.profile).tighten(decision.obligations)
        timeout_s = min(tool.timeout_s, profile.wall_s)
        obliged = decision.obligations
        claimed = ClaimedCall(
            # Kept with the call: a later worker that takes it up must not give it more.
            stored=stored.model_copy(update={"obligations": obliged, "grant_id": grant}),
            generation=self._generation,
            behaviour_hash=tool.behaviour_hash,
            timeout_s=timeout_s,
            sandbox=self._surroundings.summary(timeout_s),
            environment=self._surroundings.environment,
        )
        store.transition(
            unit.connection,
            stored.identity,
            CallState.QUEUED,
            CallState.RUNNING,
            generation=self._generation,
            behaviour_hash=tool.behaviour_hash,
            classification=tool.classification.value,
            obligations=obliged.model_dump_json(exclude_defaults=True, context=UNREDACTED),
        )
        self._log.append(unit, call_events.approved(stored.call, stored.subject, stored.sources, approval, grant))
        self._log.append(unit, call_events.started(stored.call, stored.subject, claimed.environment, claimed.sandbox))
        return claimed


def _blocked(stored: CallRecord) -> tuple[DenialCode, str] | None:
    """Why nothing of this session starts any more."""
    if not stored.session_open:
        return DenialCode.SESSION_CLOSED, "The session was closed."
    if stored.barred:
        reason = "The tenant is suspended, or the principal whose session this is was disabled."
        return DenialCode.SUSPENDED, reason
    return None


def _current_digest(stored: CallRecord, tool: Tool, decision: Decision) -> str:
    """What an approval of this call would bind now."""
    bound = bound_files_value(stored.bound)
    return approval_digest(
        stored.call, tool.behaviour_hash, decision, _session_facts(stored), bound=bound, preview=stored.preview
    )


def _session_facts(stored: CallRecord) -> SessionFacts:
    return SessionFacts(
        subject=stored.subject,
        host_id=stored.host_id,
        image=stored.image,
        profile=stored.profile,
        open=stored.session_open,
    )
