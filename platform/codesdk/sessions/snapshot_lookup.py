"""Which snapshot a new session starts from, where it is to go on where an ended one stopped."""

from __future__ import annotations

from sqlalchemy import Connection

from codesdk.domain.ids import ArtifactId, SessionId, TenantId
from codesdk.hosts import store as host_store
from codesdk.hosts.host import HostState
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import store
from codesdk.sessions.session import NoSnapshot, SessionNotEnded, SessionUnknown, SnapshotPending


def last_snapshot(connection: Connection, tenant: TenantId, session: SessionId) -> ArtifactId:
    """The ended session's last.

    Raises:
        SessionUnknown: not there, or another tenant's. SessionNotEnded: it is open.
        SnapshotPending: its worker is about to take the last. NoSnapshot: none was taken.
    """
    found = store.find(connection, tenant, session)
    if found is None:
        raise SessionUnknown(f"There is no session {session}.")
    if found.state == "open":
        raise SessionNotEnded(f"The session {session} has not ended.", advice="Close it first, or go on in it.")
    row = sandbox_store.of_session(connection, session)
    if found.snapshots and row is not None and row.state is SandboxState.CLOSING:
        host = host_store.find(connection, found.host_id)
        if host is not None and host.state is not HostState.LOST and not host.away:
            raise SnapshotPending(f"The last snapshot of {session} is being taken.", advice="Try again in a moment.")
    if found.snapshot_artifact is None:
        raise NoSnapshot(
            f"No snapshot was taken of the session {session}.",
            advice="They are taken of sessions that are opened with `snapshots`, after calls that write.",
        )
    return found.snapshot_artifact
