"""Writes each attempt to leave a sandbox into its session's log, before its first byte passes."""

from __future__ import annotations

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import SandboxEgress
from codesdk.errors import InternalFault
from codesdk.eventlog.log import Log
from codesdk.sandbox import store
from codesdk.sandbox.egress.attempt import Attempt
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.sandbox_events import draft_of


class EgressRecord:
    """The recorder that the egress proxy calls; what it raises keeps the attempt from passing."""

    def __init__(self, database: Database, writer: Writer, log: Log, environment: ToolExecutionEnv) -> None:
        """Environment: where the worker's sandboxes run."""
        self._environment = environment
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

        def store_it(unit: Unit) -> None:
            self._log.append(unit, draft)

        self._writer.run(store_it)
