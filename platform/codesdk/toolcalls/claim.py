"""The worker takes a call: judged again, its approval used up, `approved` and `started` in one transaction."""

from __future__ import annotations

from codesdk.approvals import Approval, ApprovalState, Desk
from codesdk.domain.calls import CallIdentity, CallState, DenialCode
from codesdk.domain.decisions import IN_FULL, Decision, Effect
from codesdk.domain.ids import ApprovalId, GrantId, HostId, TenantId
from codesdk.domain.quotas import QuotaExceeded, Quotas, Resource
from codesdk.eventlog.log import Log
from codesdk.hosts import store as host_store
from codesdk.policy import Bundles, decide
from codesdk.registry import Registries, Tool, ToolWithheld, UnknownTool
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.surroundings import Surroundings
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls import doubt, history, store, turn_store, turns
from codesdk.toolcalls.binding import asked_of, digest_of
from codesdk.toolcalls.bound_files import files_of
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.shares import Shares
from codesdk.toolcalls.stored import Claimed, Denied, SessionFacts, StoredCall

CONTAINER = Surroundings()


class Claims:
    """Takes the calls of one host."""

    def __init__(
        self,
        *,
        registry: Registries,
        bundles: Bundles,
        desk: Desk,
        log: Log,
        writer: Writer,
        host: HostId,
        generation: int,
        quotas: Quotas[Unit],
        surroundings: Surroundings = CONTAINER,
        most_of_tenant: int = 0,
    ) -> None:
        """`generation`: the worker's fencing number, written into every claim; `surroundings`: where it runs them.

        `most_of_tenant`: calls that one tenant has here at once, those counted that `leave` was not told of; 0: no limit.
        """
        self._shares = Shares(most_of_tenant)
        self._quotas = quotas
        self._surroundings = surroundings
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
            return turn_store.anybody(connection, self._host)

    def look_again(self) -> None:
        """Find tenants that no end of a call told of: their limit was raised, say."""
        with self._log.database.read() as connection:
            overlooked = turn_store.is_overlooked(connection, self._host)
        if overlooked:
            self._writer.run(lambda unit: turn_store.look_again(unit.connection, self._host))

    def take_up(self) -> None:
        """Once, when a worker starts: let go the calls that a version without turns left behind."""
        self._writer.run(lambda unit: turns.take_up(unit, self._host))

    def take(self) -> Claimed | Denied | None:
        """The next call of this host. None: nothing may start now. Denied: it was taken off the queue unrun.

        Whoever runs it says when it has left.
        """
        entered: list[CallIdentity] = []
        taken = None
        try:
            taken = self._writer.run(lambda unit: self._take(unit, entered))
        finally:
            for call in entered:
                if not isinstance(taken, Claimed) or call != taken.stored.identity:
                    self._shares.leave(call)
        return taken

    def leave(self, claimed: Claimed) -> None:
        """It is not at this worker any more."""
        self._shares.leave(claimed.stored.identity)

    def _take(self, unit: Unit, entered: list[CallIdentity]) -> Claimed | Denied | None:
        while entered:  # what this unit took when it was run before, and was undone
            self._shares.leave(entered.pop())
        stored = self._next(unit)
        if stored is None:
            return None
        # Here and not after the commit: the next claim of this group must see it.
        entered.append(stored.identity)
        self._shares.enter(stored.identity, stored.tenant_id)
        asked = self._desk.of_call(unit, stored.identity) if stored.digest is not None else None
        if (barred := _barred(stored)) is not None:
            return self._deny(unit, stored, asked, *barred)
        tool = self._tool(stored)
        if isinstance(tool, str):
            return self._deny(unit, stored, asked, DenialCode.VOIDED, tool)
        bundle = self._bundles.of(stored.subject.tenant_id, stored.subject.policy_hash)
        judged = decide(stored.call, tool, stored.subject, bundle)
        # Once more: the same call may have been lost while this one waited.
        decision = doubt.weighed(unit.connection, stored.call, tool, stored.subject, judged)
        if stored.grant_id is not None and decision.effect is Effect.ASK and decision is judged:
            granted = decide(stored.call, tool, stored.subject, bundle, granted=decision.rules)
            return self._by_grant(unit, stored, tool, stored.grant_id, asks=decision, granted=granted)
        refusal = self._refusal(unit, stored, tool, decision, asked)
        if refusal is not None:
            return self._deny(unit, stored, asked, DenialCode.VOIDED if asked else DenialCode.POLICY, refusal)
        return self._start(unit, stored, tool, decision, approval=asked.id if asked else None)

    def _tool(self, stored: StoredCall) -> Tool | str:
        """The call's tool, or why there is none to call."""
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return f"The tool {stored.call.name} is gone."
        return ToolWithheld(tool.name, tool.withheld).message if tool.withheld else tool

    def _by_grant(
        self, unit: Unit, stored: StoredCall, tool: Tool, grant: GrantId, *, asks: Decision, granted: Decision
    ) -> Claimed | Denied:
        """Start it if its grant lets it through still; one of its uses is counted with the start."""
        asked = asked_of(stored.call, tool, _facts(stored), asks)
        if granted.effect is Effect.ALLOW and self._desk.grants.use(unit, grant, asked):
            return self._start(unit, stored, tool, granted, grant=grant)
        reason = "The grant that let this call through does not any more. Call it again to ask."
        return self._deny(unit, stored, None, DenialCode.VOIDED, reason)

    def _next(self, unit: Unit) -> StoredCall | None:
        """The call of the tenant whose turn it is, if it may have one more running; else of the one after it."""
        if not host_store.serves(unit.connection, self._host, self._generation):
            return None  # given up, or a newer worker's: whoever was frozen meanwhile starts nothing
        for turn in turns.in_order(unit, self._host):
            if self._shares.is_full(turn.tenant):
                continue  # it keeps its mark: whichever of its calls ends here first, that thread takes the next
            stored = store.next_queued(unit.connection, self._host, turn.tenant)
            if stored is not None and self._has_room(unit, turn.tenant):
                turns.served(unit, self._host, turn)
                return stored
            turns.passed(unit, self._host, turn)
        return None

    def _has_room(self, unit: Unit, tenant: TenantId) -> bool:
        try:
            self._quotas.reserve(unit, tenant, Resource.RUNNING_CALLS)
        except QuotaExceeded:
            return False  # it keeps its place; the end of one of its calls has it looked at again
        return True

    def _deny(self, unit: Unit, stored: StoredCall, asked: Approval | None, code: DenialCode, reason: str) -> Denied:
        if asked is not None:
            self._desk.end(unit, asked.id, ApprovalState.APPROVED, ApprovalState.VOIDED)
        return deny(unit, self._log, stored, code, reason)

    def _refusal(
        self, unit: Unit, stored: StoredCall, tool: Tool, decision: Decision, asked: Approval | None
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
        if decision.effect is Effect.ASK and _digest(stored, tool, decision) != asked.digest:
            known = decision.model_copy(update={"doubt": None})
            if decision.doubt is not None and _digest(stored, tool, known) == asked.digest:
                return (
                    "It was approved before the same call was lost, so nobody was asked about a repetition of what may "
                    f"have taken effect ({decision.doubt}). Look at what is there, and call it again to ask about that."
                )
            return "What was approved is not what would run now. Call it again to ask again."
        return None if self._desk.consume(unit, asked.id) else "The approval is not there any more."

    def _start(
        self,
        unit: Unit,
        stored: StoredCall,
        tool: Tool,
        decision: Decision,
        *,
        approval: ApprovalId | None = None,
        grant: GrantId | None = None,
    ) -> Claimed:
        profile = Profile.model_validate(stored.profile).tighten(decision.obligations)
        timeout_s = min(tool.timeout_s, profile.wall_s)
        obliged = decision.obligations
        claimed = Claimed(
            # Kept with the call: a later worker that takes it up must not give it more.
            stored=stored.model_copy(update={"obligations": obliged, "grant_id": grant}),
            generation=self._generation,
            behaviour_hash=tool.behaviour_hash,
            timeout_s=timeout_s,
            sandbox=self._surroundings.summary(timeout_s),
            environment=self._surroundings.environment,
        )
        store.move(
            unit.connection,
            stored.identity,
            CallState.QUEUED,
            CallState.RUNNING,
            generation=self._generation,
            behaviour_hash=tool.behaviour_hash,
            classification=tool.classification.value,
            obligations=obliged.model_dump_json(exclude_defaults=True, context=IN_FULL),
        )
        self._log.append(unit, history.approved(stored.call, stored.subject, stored.sources, approval, grant))
        self._log.append(unit, history.started(stored.call, stored.subject, claimed.environment, claimed.sandbox))
        return claimed


def _barred(stored: StoredCall) -> tuple[DenialCode, str] | None:
    """Why nothing of this session starts any more."""
    if not stored.session_open:
        return DenialCode.SESSION_CLOSED, "The session was closed."
    if stored.barred:
        reason = "The tenant is suspended, or the principal whose session this is was disabled."
        return DenialCode.SUSPENDED, reason
    return None


def _digest(stored: StoredCall, tool: Tool, decision: Decision) -> str:
    """What an approval of this call would bind now."""
    bound = files_of(stored.bound)
    return digest_of(stored.call, tool.behaviour_hash, decision, _facts(stored), bound=bound, preview=stored.preview)


def _facts(stored: StoredCall) -> SessionFacts:
    return SessionFacts(
        subject=stored.subject,
        host_id=stored.host_id,
        image=stored.image,
        profile=stored.profile,
        open=stored.session_open,
    )
