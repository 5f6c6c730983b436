"""Taking a started sandbox out of the warm pool, in one statement: for a session, or for a copy."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, select, update

from codesdk.domain.ids import HostId, SandboxId, SessionId
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records.store import SandboxState, profile_text
from codesdk.storage.schema import hosts, sandboxes


def claim_for_session(
    connection: Connection, session: SessionId, host: HostId, *, image: str, profile: Profile
) -> SandboxId | None:
    """Give the session a pooled sandbox of exactly that image and profile, in one statement; None where there is none.

    The row is `wanted` from then on, as every session's: what the worker opens for it is there already. One of a worker
    before the host's newest is left alone: its runner may be another version's.
    """
    found = _claim_row(connection, host, image, profile, session_id=session, state=SandboxState.WANTED.value)
    return SandboxId(found.id) if found else None


def claim_for_preview(
    connection: Connection, host: HostId, *, image: str, profile: Profile
) -> tuple[SandboxId, int] | None:
    """Make a pooled sandbox of exactly that image and profile a copy: its id and tool uid; None where there is none."""
    found = _claim_row(connection, host, image, profile, state=SandboxState.COPY.value)
    return (SandboxId(found.id), found.tool_uid) if found else None


def _claim_row(connection: Connection, host: HostId, image: str, profile: Profile, **values: Any) -> Row[Any] | None:
    """The row of one that was free, changed so."""
    free = (
        select(sandboxes.c.id)
        .join(hosts, (hosts.c.id == sandboxes.c.host_id) & (hosts.c.generation == sandboxes.c.generation))
        .where(
            sandboxes.c.host_id == host,
            sandboxes.c.state == SandboxState.POOLED.value,
            sandboxes.c.image == image,
            sandboxes.c.profile == profile_text(profile),
        )
        .order_by(sandboxes.c.id)
        .limit(1)
        # On PostgreSQL two claims at once take two rows instead of waiting for each other; SQLite has one writer.
        .with_for_update(skip_locked=True, of=sandboxes)
        .scalar_subquery()
    )
    return connection.execute(
        update(sandboxes)
        .where(sandboxes.c.id == free, sandboxes.c.state == SandboxState.POOLED.value)
        .values(**values)
        .returning(sandboxes.c.id, sandboxes.c.tool_uid)
    ).one_or_none()
