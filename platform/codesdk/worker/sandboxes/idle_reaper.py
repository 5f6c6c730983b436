"""Idle reaper: pauses idle sandboxes, closes them later, and closes any that reach their lifetime."""

from __future__ import annotations

import logging
from enum import StrEnum

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import IdleState, SandboxState
from codesdk.sessions import SessionService
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)


class IdleAction(StrEnum):
    """The action that is due. The value is the recorded reason."""

    NOTHING = "nothing"
    PAUSE = "pause"
    IDLE = "idle"
    TOO_OLD = "lifetime"


def due_action(found: IdleState, now: float) -> IdleAction:
    """The action due at `now` (seconds since the epoch). 0 in the profile means never."""
    profile = Profile.model_validate_json(found.row.profile)
    if profile.lifetime_s and now - found.ready_at >= profile.lifetime_s:
        return IdleAction.TOO_OLD
    if found.idle_since is None:
        return IdleAction.NOTHING
    idle = now - found.idle_since
    if profile.idle_s and idle >= profile.idle_s and not found.awaits_person:
        return IdleAction.IDLE
    if profile.pause_after_s and idle >= profile.pause_after_s and found.row.state is SandboxState.READY:
        return IdleAction.PAUSE
    return IdleAction.NOTHING


class IdleReaper:
    """Pauses and closes sandboxes that are due. Call from one thread."""

    def __init__(
        self,
        *,
        sandbox_registry: SandboxRegistry,
        sessions: SessionService,
        host: OwnedHost,
        database: Database,
        clock: Clock,
    ) -> None:
        self._sandbox_registry = sandbox_registry
        self._sessions = sessions
        self._host = host
        self._database = database
        self._clock = clock

    def look(self) -> None:
        """Check the host's sandboxes once."""
        with self._database.read() as connection:
            found = store.idle_states(connection, self._host.id)
        now = self._clock.now().timestamp()
        for each in found:
            action = due_action(each, now)
            if action is IdleAction.NOTHING:
                continue
            try:
                self._apply(each, action, now)
            except Fault as fault:
                # One failure must not keep the other sandboxes running.
                _log.warning("sandbox %s is due (%s): %s", each.row.id, action, fault)

    def _apply(self, found: IdleState, action: IdleAction, now: float) -> None:
        row = found.row
        # Rows know calls, but only the sandbox knows background processes. Ask it only when an action is due; a paused one
        # runs nothing.
        if (
            action is not IdleAction.TOO_OLD
            and row.state is SandboxState.READY
            and self._sandbox_registry.has_background_process(row)
        ):
            return
        if action is IdleAction.PAUSE:
            self._sandbox_registry.pause(row, now - Profile.model_validate_json(row.profile).pause_after_s)
            return

        def still_due(unit: Unit) -> bool:
            """Check again: a call may have arrived since the rows were read."""
            again = store.idle_states(unit.connection, self._host.id, row.session_id)
            return any(due_action(each, now) is action for each in again)

        if self._sessions.close_if(row.tenant_id, row.session_id, action.value, still_due):
            _log.info("session %s was closed (%s)", row.session_id, action)
