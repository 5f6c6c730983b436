"""The owner rows of sandboxes: written before the engine is called, so nothing can exist without one."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Connection, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import HostId, SandboxId, SessionId
from codesdk.errors import Fault
from codesdk.storage.schema import sandboxes, sessions

FIRST_UID = 200_000
"""Above every uid that images and hosts use for people and services."""
LAST_UID = 265_535


class NoToolUid(Fault):
    """Every tool uid of the host is taken."""

    code = "HOST_FULL"
    retryable = True
    status = 503


class SandboxState(StrEnum):
    """What should be, as much as what is: the worker makes it so."""

    WANTED = "wanted"
    READY = "ready"
    CLOSING = "closing"
    GONE = "gone"


class SandboxRow(Frozen):
    """One owner row."""

    id: SandboxId
    session_id: SessionId
    host_id: HostId
    state: SandboxState
    tool_uid: int
    image: str
    profile: str
    """JSON of the profile in force."""
    tenant_id: str
    seed_artifact: str | None
    principal_id: str
    permission_mode: str
    runtime: str


def insert(connection: Connection, sandbox: SandboxId, session: SessionId, host: HostId) -> int:
    """Want a sandbox for the session; returns its tool uid, the lowest that is free on the host.

    Raises:
        NoToolUid: the host has no uid left.
    """
    taken = set(
        connection.execute(
            select(sandboxes.c.tool_uid).where(
                sandboxes.c.host_id == host, sandboxes.c.state != SandboxState.GONE.value
            )
        ).scalars()
    )
    uid = next((uid for uid in range(FIRST_UID, LAST_UID + 1) if uid not in taken), None)
    if uid is None:
        raise NoToolUid("This host runs as many sandboxes as it has tool uids.", advice="Close sessions or add a host.")
    row = {"id": sandbox, "session_id": session, "host_id": host, "state": "wanted", "tool_uid": uid}
    connection.execute(insert_into(sandboxes), row)
    return uid


def of_session(connection: Connection, session: str) -> SandboxRow | None:
    """The session's sandbox row."""
    rows = _rows(connection, sandboxes.c.session_id == session)
    return rows[0] if rows else None


def on_host(connection: Connection, host: HostId, states: tuple[SandboxState, ...]) -> list[SandboxRow]:
    """The host's rows in these states."""
    wanted = [state.value for state in states]
    return _rows(connection, (sandboxes.c.host_id == host) & sandboxes.c.state.in_(wanted))


def move(
    connection: Connection,
    sandbox: SandboxId,
    before: tuple[SandboxState, ...],
    after: SandboxState,
    *,
    attestation: str | None = None,
    reason: str | None = None,
) -> bool:
    """Change the state if it is one of `before`: a closing row never becomes ready again."""
    values: dict[str, str] = {"state": after.value}
    if attestation is not None:
        values["attestation"] = attestation
    if reason is not None:
        values["reason"] = reason
    changed = connection.execute(
        update(sandboxes)
        .where(sandboxes.c.id == sandbox, sandboxes.c.state.in_([state.value for state in before]))
        .values(values)
    )
    return changed.rowcount == 1


def _rows(connection: Connection, condition: object) -> list[SandboxRow]:
    query = (
        select(
            sandboxes,
            sessions.c.image,
            sessions.c.profile,
            sessions.c.tenant_id,
            sessions.c.seed_artifact,
            sessions.c.principal_id,
            sessions.c.permission_mode,
            sessions.c.runtime,
        )
        .join(sessions, sessions.c.id == sandboxes.c.session_id)
        .where(condition)  # type: ignore[arg-type]
    )
    fields = SandboxRow.model_fields
    return [
        SandboxRow.model_validate({name: value for name, value in row._asdict().items() if name in fields})
        for row in connection.execute(query)
    ]
