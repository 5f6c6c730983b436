"""Records each egress attempt in the session's log and counts its bytes against the tenant's daily quota.

Both happen before traffic passes. Bytes are reserved in steps, and the unused rest is returned when the connection ends.
So the count is never too low, and a killed worker overcounts by at most one step per connection (docs/adr/0042).
"""

from __future__ import annotations

from dataclasses import dataclass

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.ids import TenantId
from codesdk.domain.payloads import SandboxEgress
from codesdk.domain.quotas import EgressReservation, QuotaExceeded, Quotas, UnlimitedQuotas
from codesdk.errors import InternalFault
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, ConnectionKey, Reason, Refusal
from codesdk.sandbox.records import store
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.sandboxes.events import sandbox_event

UNMETERED = UnlimitedQuotas()
FIRST_RESERVATION = 256 * 1024
"""Bytes reserved when a connection opens. Most move less and so need no further commit."""
MAX_RESERVATION = 8 * 1024 * 1024
"""Most bytes reserved at once. Each step doubles the total, so long connections reserve rarely."""


@dataclass
class _ByteReservation:
    """An open connection's share of the tenant's daily quota."""

    tenant: TenantId
    last: EgressReservation
    """Reserved on the last day with a reservation."""
    taken: int
    """Reserved in total, over all days."""
    given: int = 0
    """How much of that the proxy was granted."""

    def add(self, more: EgressReservation) -> None:
        """Add a step."""
        same = more.day == self.last.day
        self.last = more._replace(amount=more.amount + self.last.amount) if same else more
        self.taken += more.amount

    def unused(self, moved: int) -> EgressReservation:
        """The unused rest. Earlier reservations count as used first, so it belongs to the last day."""
        return self.last._replace(amount=max(0, min(self.taken - moved, self.last.amount)))


class EgressRecorder:
    """Called by the egress proxy from one thread. An exception blocks the attempt."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        log: EventLog,
        environment: ToolExecutionEnv,
        quotas: Quotas[Unit] = UNMETERED,
    ) -> None:
        """`environment`: where the worker's sandboxes run."""
        self._environment = environment
        self._quotas = quotas
        self._database = database
        self._writer = writer
        self._log = log
        self._held: dict[ConnectionKey, _ByteReservation] = {}

    def tenant_of(self, owner: str) -> str | None:
        """The tenant of a sandbox. None if it has no session."""
        with self._database.read() as connection:
            row = store.find(connection, owner)
        return row.tenant_id if row is not None else None

    def __call__(self, attempt: ConnectionAttempt) -> None:
        """Store an attempt.

        Raises:
            Refusal: the tenant's daily quota is used up; nothing passes.
            InternalFault: the sandbox has no session.
            StorageUnavailable: it could not be stored.
        """
        reservation = self._held.pop(attempt.connection, None)
        with self._database.read() as connection:
            row = store.find(connection, attempt.owner)
        if row is None:
            raise InternalFault(f"An attempt to leave names sandbox {attempt.owner}, which no session owns.")
        known = attempt.model_dump(mode="json", exclude={"owner", "call"}, exclude_defaults=True)
        where = {"sandbox_id": attempt.owner, "tool_call_id": attempt.call, "execution_env": self._environment}
        payload = SandboxEgress.model_validate({**where, **known})
        draft = self._log.encode(sandbox_event(row, payload))

        def store_it(unit: Unit) -> EgressReservation | None:
            self._log.append(unit, draft)
            if attempt.phase is AttemptPhase.OPENED:
                return self._quotas.reserve_egress(unit, row.tenant_id, FIRST_RESERVATION)
            if reservation is not None:
                self._quotas.give_back(
                    unit, reservation.tenant, reservation.unused(attempt.bytes_up + attempt.bytes_down)
                )
            return None

        try:
            taken = self._writer.run(store_it)
        except QuotaExceeded as full:
            raise Refusal(Reason.BYTES_A_DAY, full.message) from full
        if taken is not None:
            self._held[attempt.connection] = _ByteReservation(row.tenant_id, taken, taken.amount)

    def more(self, attempt: ConnectionAttempt, least: int) -> int:
        """Grant an open connection `least` or more bytes; returns the number. Commits once, but not for the first grant.

        Raises:
            Refusal: the tenant's daily quota has fewer left; the connection is ended.
            InternalFault: the connection's opening was not recorded.
            StorageUnavailable: the bytes could not be counted.
        """
        reservation = self._held.get(attempt.connection)
        if reservation is None:
            raise InternalFault(f"A connection of sandbox {attempt.owner} moves bytes, and was not recorded.")
        if (more := reservation.taken - reservation.given) < least:
            asked = min(reservation.taken, MAX_RESERVATION)
            try:
                taken = self._writer.run(
                    lambda unit: self._quotas.reserve_egress(unit, reservation.tenant, asked, least=least - more)
                )
            except QuotaExceeded as full:
                raise Refusal(Reason.BYTES_A_DAY, full.message) from full
            reservation.add(taken)
        more, reservation.given = reservation.taken - reservation.given, reservation.taken
        return more
