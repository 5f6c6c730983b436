"""The running calls of a session that was closed: their runner has a moment to say their end, before the sandbox goes."""

from __future__ import annotations

from codesdk.domain.calls import CallState
from codesdk.domain.clock import Clock
from codesdk.sandbox.records.store import SandboxRow
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store

GRACE_S = 3.0
"""Seconds: a cancel is over in two. What does not end in it is lost with its sandbox."""


class RemovalGrace:
    """Who is waited for. Used with the session's guard held."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._since: dict[str, float] = {}

    def should_wait(self, row: SandboxRow) -> bool:
        """Whether the removal of this sandbox, which is open here, is put off until the next look.

        Raises:
            StorageUnavailable: nobody can say.
        """
        now = self._clock.monotonic()
        if now - self._since.setdefault(row.id, now) >= GRACE_S:
            return False
        with self._database.read() as connection:
            return bool(store.list_in_state(connection, CallState.RUNNING, session=row.session_id))

    def forget(self, row: SandboxRow) -> None:
        """It is removed."""
        self._since.pop(row.id, None)
