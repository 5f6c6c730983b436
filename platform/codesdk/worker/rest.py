"""What becomes of sandboxes that nobody uses: frozen after a while, closed later, and closed for good at their age."""

from __future__ import annotations

import logging
from enum import StrEnum

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.sandbox import store
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.store import Resting, SandboxState
from codesdk.sessions import Sessions
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.worker.host import Host
from codesdk.worker.rooms import Rooms

_log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """What is due; the value is the reason that the record gives."""

    NOTHING = "nothing"
    PAUSE = "pause"
    IDLE = "idle"
    TOO_OLD = "lifetime"


def judge(found: Resting, now: float) -> Verdict:
    """What is due to that sandbox at `now` (seconds since the epoch). 0 in the profile stands for never."""
    profile = Profile.model_validate_json(found.row.profile)
    if profile.lifetime_s and now - found.ready_at >= profile.lifetime_s:
        return Verdict.TOO_OLD
    if found.idle_since is None:
        return Verdict.NOTHING
    idle = now - found.idle_since
    if profile.idle_s and idle >= profile.idle_s and not found.awaits_person:
        return Verdict.IDLE
    if profile.pause_after_s and idle >= profile.pause_after_s and found.row.state is SandboxState.READY:
        return Verdict.PAUSE
    return Verdict.NOTHING


class Rest:
    """Looks at the rows and does what is due. Called from one thread."""

    def __init__(self, *, rooms: Rooms, sessions: Sessions, host: Host, database: Database, clock: Clock) -> None:
        self._rooms = rooms
        self._sessions = sessions
        self._host = host
        self._database = database
        self._clock = clock

    def look(self) -> None:
        """Go through the host's sandboxes."""
        with self._database.read() as connection:
            found = store.resting(connection, self._host.id)
        now = self._clock.now().timestamp()
        for each in found:
            verdict = judge(each, now)
            if verdict is Verdict.NOTHING:
                continue
            try:
                self._do(each, verdict, now)
            except Fault as fault:
                # One that cannot be paused or closed now must not keep the others awake.
                _log.warning("sandbox %s is due (%s): %s", each.row.id, verdict, fault)

    def _do(self, found: Resting, verdict: Verdict, now: float) -> None:
        row = found.row
        # The rows know calls. What runs in the background only the sandbox knows: asked when it matters, not all the time.
        # A frozen one has nothing that runs.
        if verdict is not Verdict.TOO_OLD and row.state is SandboxState.READY and self._rooms.works(row):
            return
        if verdict is Verdict.PAUSE:
            self._rooms.pause(row, now - Profile.model_validate_json(row.profile).pause_after_s)
            return

        def still_due(unit: Unit) -> bool:
            """A call may have come since the rows were read."""
            again = store.resting(unit.connection, self._host.id, row.session_id)
            return any(judge(each, now) is verdict for each in again)

        if self._sessions.retire(row.tenant_id, row.session_id, verdict.value, still_due):
            _log.info("session %s was closed (%s)", row.session_id, verdict)
