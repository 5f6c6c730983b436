"""The worker takes a call: judged again, its approval used up, `approved` and `started` in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from codesdk.approvals import Approval, ApprovalService, ApprovalState
from codesdk.domain.calls import CallIdentity, CallState, DenialCode
from codesdk.domain.decisions import UNREDACTED, Decision, Effect
from codesdk.domain.ids import ApprovalId, GrantId, HostId, TenantId
from codesdk.domain.quotas import QuotaExceeded, Quotas, Resource
from codesdk.eventlog.log import EventLog
from codesdk.policy import BundleProvider
from codesdk.registry import RegistryProvider, Tool, ToolWithheld, UnknownTool
from codesdk.sandbox.port import ExecutionEnvironment
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.bound_files import bound_files_value
from codesdk.toolcalls.approval.digest import approval_digest
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.decision.log_limits import LogLimits
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall, Denied
from codesdk.toolcalls.run.effective_limits import EffectiveLimits

CONTAINER = ExecutionEnvironment()


class OrphanedCall(NamedTuple):
    """A call whose row is `running` while no thread of this worker runs it."""

    stored: CallRecord
    begun: bool
    """A thread ran it before. False: the claim's commit succeeded but its answer was lost, so nothing has run."""


class _Claim:
    """A claim, and the call that it took."""

    stored: CallRecord | None = None
    is_kept = False
    """The claim was committed, and the call runs."""


class InFlightCalls:
    """The calls that this worker's threads run, and running calls that no thread has (orphaned). Thread-safe.

    A claim can commit while its answer is lost with the connection. Then the row is `running` and no thread runs the
    call. The row alone looks the same as a claim whose answer is still on its way. So each claim is *in progress* from
    before its unit until after it. A call is orphaned if no thread has it and every claim that was in progress when it
    was first seen has returned.
    """

    def __init__(self, most_of_tenant: int = 0) -> None:
        """`most_of_tenant`: calls of one tenant that this worker claims at once; 0: no limit."""
        self._most = most_of_tenant
        self._lock = threading.Lock()
        self._claims: set[_Claim] = set()
        self._calls: dict[CallIdentity, _Claim | None] = {}
        """By attempt: the next one of a call may begin before the thread that lost the one before has left.

        None for a recovered call, which doesn't count against its tenant's limit.
        """
        self._released: set[CallIdentity] = set()
        """Calls that their thread has released; kept only while their rows are `running`."""
        self._suspects: dict[CallIdentity, frozenset[_Claim]] = {}
        """Calls without a thread when first seen, each with the claims that were in progress then."""

    @contextmanager
    def claiming(self) -> Iterator[_Claim]:
        """Mark a claim as in progress. Its call stays registered only if the claim `is_kept` at the end."""
        claim = _Claim()
        with self._lock:
            self._claims.add(claim)
        try:
            yield claim
        finally:
            self.take(claim, claim.stored if claim.is_kept else None)
            with self._lock:
                self._claims.discard(claim)

    def take(self, claim: _Claim, stored: CallRecord | None) -> None:
        """Register the call that a claim takes, inside its unit: the next claim of the same group commit must count it.

        The unit may be undone and run again, and take another call. Then another claim may have taken the first one.
        """
        with self._lock:
            if claim.stored is not None and self._calls.get(claim.stored.identity) is claim:
                del self._calls[claim.stored.identity]
            claim.stored = stored
            if stored is not None:
                self._calls[stored.identity] = claim

    def is_full(self, tenant: TenantId) -> bool:
        """Whether the tenant has as many calls as it may."""
        with self._lock:
            claims = (claim.stored for claim in self._calls.values() if claim is not None)
            return bool(self._most) and sum(stored.tenant_id == tenant for stored in claims if stored) >= self._most

    def add(self, *calls: CallIdentity) -> None:
        """Register recovered calls."""
        with self._lock:
            self._calls.update(dict.fromkeys(calls))

    def discard(self, call: CallIdentity) -> None:
        """Remove a call that has ended or that its thread gave up."""
        with self._lock:
            self._calls.pop(call, None)
            self._released.add(call)

    def take_orphaned(self, running: Iterable[CallRecord]) -> list[OrphanedCall]:
        """Register and return the orphaned calls. `running`: this worker's running rows. A call seen first is only noted."""
        with self._lock:
            rows = {stored.identity: stored for stored in running}
            unowned = [call for call in rows if call not in self._calls]
            orphaned = [call for call in unowned if call in self._suspects and not self._suspects[call] & self._claims]
            now = frozenset(self._claims)
            self._suspects = {call: self._suspects.get(call, now) for call in unowned if call not in orphaned}
            self._released &= rows.keys()
            self._calls.update(dict.fromkeys(orphaned))
            return [OrphanedCall(rows[call], begun=call in self._released) for call in orphaned]


class CallClaimer:
    """Takes the calls of one host."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        approval_service: ApprovalService,
        log: EventLog,
        writer: Writer,
        host: HostId,
        generation: int,
        quotas: Quotas[Unit],
        execution_environment: ExecutionEnvironment = CONTAINER,
        in_flight: InFlightCalls | None = None,
        log_limits: LogLimits | None = None,
    ) -> None:
        """`generation`: the worker's fencing number, written into every claim; `execution_environment`: where calls run.

        `in_flight`: the worker's register; a claimed call is in it until `leave`. `log_limits`: None for no limits.
        """
        self._log_limits = log_limits
        self._in_flight = in_flight or InFlightCalls()
        self._quotas = quotas
        self._environment = execution_environment
        self._registry = registry
        self._decisions = CallDecisions(bundles, approval_service)
        self._approval_service = approval_service
        self._log = log
        self._writer = writer
        self._host = host
        self._generation = generation

    def any(self) -> bool:
        """Whether a call may start now. A cheap read, for polls that mostly find nothing."""
        with self._log.database.read() as connection:
            return queue.has_candidates(connection, self._host)

    def look_again(self) -> None:
        """Find tenants whose calls may start although no call of theirs ended: after a raised limit, for instance."""
        with self._log.database.read() as connection:
            overlooked = queue.has_missed_tenant(connection, self._host)
        if overlooked:
            self._writer.run(lambda unit: queue.rescan(unit.connection, self._host))

    def take_up(self) -> None:
        """At a worker's start: release the calls that a version without the fair queue left held."""
        self._writer.run(lambda unit: queue.release_legacy_holds(unit, self._host))

    def take(self) -> ClaimedCall | Denied | None:
        """Claim the next call of this host. None: nothing may start now. Denied: it left the queue without running.

        The caller calls `leave` when the claimed call has left this worker.
        """
        with self._in_flight.claiming() as claim:
            taken = self._writer.run(lambda unit: self._take(unit, claim))
            claim.is_kept = isinstance(taken, ClaimedCall)
        return taken

    def leave(self, claimed: ClaimedCall) -> None:
        """The call isn't at this worker any more."""
        self._in_flight.discard(claimed.stored.identity)

    def _take(self, unit: Unit, claim: _Claim) -> ClaimedCall | Denied | None:
        self._in_flight.take(claim, None)
        stored = self._next_call(unit)
        if stored is None:
            return None
        self._in_flight.take(claim, stored)
        asked = self._approval_service.of_call(unit, stored.identity) if stored.digest is not None else None
        if (blocked := _blocked(stored)) is not None:
            return self._deny(unit, stored, asked, *blocked)
        limits = self._log_limits
        if limits and (refusal := limits.check_claim(stored.subject.session_id, stored.log_bytes)):
            return self._deny(unit, stored, asked, refusal.code, refusal.message)
        tool = self._tool(stored)
        if isinstance(tool, str):
            return self._deny(unit, stored, asked, DenialCode.VOIDED, tool)
        return self._decide(unit, stored, tool, asked)

    def _decide(self, unit: Unit, stored: CallRecord, tool: Tool, asked: Approval | None) -> ClaimedCall | Denied:
        """Decide again, since rules, grants and lost calls may have changed; start the call or deny it."""
        judged = self._decisions.decide(
            unit,
            stored.call,
            tool,
            stored.subject,
            stored.session_facts,
            check_lost=True,
            use_grant=stored.grant_id,
        )
        if judged.used_grant is not None:
            return self._start(unit, stored, tool, judged.decision, grant=judged.used_grant)
        if judged.is_grant_void:
            reason = "The grant that let this call through does not any more. Call it again to ask."
            return self._deny(unit, stored, None, DenialCode.VOIDED, reason)
        refusal = self._check_still_allowed(unit, stored, tool, judged.decision, asked)
        if refusal is not None:
            return self._deny(unit, stored, asked, DenialCode.VOIDED if asked else DenialCode.POLICY, refusal)
        return self._start(unit, stored, tool, judged.decision, approval=asked.id if asked else None)

    def _tool(self, stored: CallRecord) -> Tool | str:
        """The call's tool, or why there is none to call."""
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return f"The tool {stored.call.name} is gone."
        return ToolWithheld(tool.name, tool.withheld).message if tool.withheld else tool

    def _next_call(self, unit: Unit) -> CallRecord | None:
        """The next call of the first tenant in fair order that may run one more."""
        for turn in queue.tenants_in_order(unit, self._host, self._generation):
            if self._in_flight.is_full(turn.tenant):
                continue  # it stays marked as waiting: the thread whose call of it ends first takes the next
            stored = store.next_queued(unit.connection, self._host, turn.tenant)
            if stored is not None and self._has_room(unit, turn.tenant):
                queue.mark_served(unit, self._host, turn)
                return stored
            queue.mark_skipped(unit, self._host, turn)
        return None

    def _has_room(self, unit: Unit, tenant: TenantId) -> bool:
        try:
            self._quotas.reserve(unit, tenant, Resource.RUNNING_CALLS)
        except QuotaExceeded:
            return False  # it keeps its place, until one of its calls ends
        return True

    def _deny(self, unit: Unit, stored: CallRecord, asked: Approval | None, code: DenialCode, reason: str) -> Denied:
        if asked is not None:
            self._approval_service.end(unit, asked.id, ApprovalState.APPROVED, ApprovalState.VOIDED)
        return deny(unit, self._log, stored, code, reason)

    def _check_still_allowed(
        self, unit: Unit, stored: CallRecord, tool: Tool, decision: Decision, asked: Approval | None
    ) -> str | None:
        """Why the earlier decision doesn't hold any more. If it holds, consumes the approval."""
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
                    "It was approved before the same call was lost, so the approval does not cover a repetition of what may "
                    f"have taken effect ({decision.doubt}). Check what is there, then call it again to request approval."
                )
            return "What was approved is not what would run now. Call it again to ask again."
        return None if self._approval_service.consume(unit, asked.id) else "The approval is not there any more."

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
        obliged = decision.obligations
        limits = EffectiveLimits.of(stored.profile, tool, obliged)
        timeout_s = min(tool.timeout_s, limits.profile.wall_s)
        claimed = ClaimedCall(
            # Kept with the call, so that a later worker that takes it up grants no more.
            stored=stored.model_copy(update={"obligations": obliged, "grant_id": grant}),
            generation=self._generation,
            behaviour_hash=tool.behaviour_hash,
            limits=limits,
            timeout_s=timeout_s,
            sandbox=self._environment.summary(timeout_s),
            environment=self._environment.environment,
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
    """Why no call of this session may start."""
    if not stored.session_open:
        return DenialCode.SESSION_CLOSED, "The session was closed."
    if stored.barred:
        reason = "The tenant is suspended, or the principal whose session this is was disabled."
        return DenialCode.SUSPENDED, reason
    return None


def _current_digest(stored: CallRecord, tool: Tool, decision: Decision) -> str:
    """The digest that an approval of this call would bind now."""
    bound = bound_files_value(stored.bound)
    return approval_digest(
        stored.call, tool.behaviour_hash, decision, stored.session_facts, bound=bound, preview=stored.preview
    )
