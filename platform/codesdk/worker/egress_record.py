"""Writes each attempt to leave a sandbox into its session's log, before its first byte passes."""

from __future__ import annotations

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import SandboxEgress
from codesdk.domain.quotas import QuotaExceeded, Quotas, Resource, Unmetered
from codesdk.errors import InternalFault
from codesdk.eventlog.log import Log
from codesdk.sandbox import store
from codesdk.sandbox.egress.attempt import Attempt, Phase, Reason
from codesdk.sandbox.egress.refusal import Refusal
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.sandbox_events import draft_of

UNMETERED = Unmetered()


class EgressRecord:
    """The recorder that the egress proxy calls; what it raises keeps the attempt from passing."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        log: Log,
        environment: ToolExecutionEnv,
        quotas: Quotas[Unit] = UNMETERED,
    ) -> None:
        """Environment: where the worker's sandboxes run."""
        self._environment = environment
        self._quotas = quotas
        self._database = database
        self._writer = writer
        self._log = log

    def tenant_of(self, owner: str) -> str | None:
        """The id of the tenant that a sandbox works for; None where it has no session."""
        with self._database.read() as connection:
            row = store.find(connection, owner)
        return row.tenant_id if row is not None else None

    def __call__(self, attempt: Attempt) -> None:
        """Store it.

        Raises:
            Refusal: the tenant has moved as many bytes today as it may; nothing passes.
            InternalFault: the sandbox has no session.
            StorageUnavailable: it could not be stored.
        """
        with self._database.read() as connection:
            row = store.find(connection, attempt.owner)
        if row is None:
            raise InternalFault(f"An attempt to leave names sandbox {attempt.owner}, which no session owns.")
        known = attempt.model_dump(mode="json", exclude={"owner", "call"}, exclude_defaults=True)
        where = {"sandbox_id": attempt.owner, "tool_call_id": attempt.call, "execution_env": self._environment}
        payload = SandboxEgress.model_validate({**where, **known})
        draft = self._log.written(draft_of(row, payload))

        a_day = Resource.EGRESS_BYTES_A_DAY

        def store_it(unit: Unit) -> None:
            if attempt.phase is Phase.OPENED:
                self._quotas.reserve(unit, row.tenant_id, a_day)
            elif moved := attempt.bytes_up + attempt.bytes_down:
                self._quotas.count(unit, row.tenant_id, a_day, moved)
            self._log.append(unit, draft)

        try:
            self._writer.run(store_it)
        except QuotaExceeded as full:
            raise Refusal(Reason.BYTES_A_DAY, full.message) from full
