"""SQL of the sandboxes table. A row is written before the engine is called, so every container and volume has one."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Result, Row, ScalarSelect, delete, exists, func, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.attestation import Attestation
from codesdk.domain.calls import CallState
from codesdk.domain.ids import HostId, SandboxId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.schema import hosts, sandboxes, sessions, tool_calls

FIRST_UID = 200_000
"""Above the uids that images and hosts use for users and services."""
LAST_UID = 265_535


class NoToolUid(Fault):
    """All tool uids of the host are taken."""

    code = "HOST_FULL"
    retryable = True
    status = 503


class SandboxState(StrEnum):
    """State of a sandbox, both desired and actual; the worker reconciles the host with it."""

    WANTED = "wanted"
    POOLED = "pooled"
    """In the warm pool: started, not claimed by a session."""
    COPY = "copy"
    """Throw-away sandbox with a copy of a session's workspace, for a dry run."""
    READY = "ready"
    PAUSED = "paused"
    """Frozen because the session is idle; the next call resumes it."""
    STOPPING = "stopping"
    """Stop requested. Still usable until the worker finds that no call runs."""
    HALTING = "halting"
    """Being stopped: no call runs, processes are ended, the workspace stays."""
    STOPPED = "stopped"
    """Only the workspace exists; the next call starts the sandbox again."""
    STARTING = "starting"
    """Being started again after a stop."""
    CLOSING = "closing"
    GONE = "gone"


STOPPED_STATES = (SandboxState.HALTING, SandboxState.STOPPED, SandboxState.STARTING)
"""States between a stop and the end of the next start: no process that ran a call exists any more."""
OPEN_STATES = (SandboxState.WANTED, SandboxState.READY, SandboxState.PAUSED, SandboxState.STOPPING, *STOPPED_STATES)
"""States of a sandbox that has not ended."""
_ACTIVE_CALLS = (CallState.QUEUED.value, CallState.RUNNING.value)
_WAITING = CallState.WAITING.value


class SandboxRow(FrozenModel):
    """The row of a session's sandbox."""

    id: SandboxId
    session_id: SessionId
    host_id: HostId
    state: SandboxState
    tool_uid: int
    image: str
    profile: str
    """JSON of the profile."""
    generation: int | None
    """Generation of the worker that created it for the warm pool; None if it was created for the session."""
    tenant_id: TenantId
    seed_artifact: str | None
    opened_from: str | None = None
    """Session whose snapshot is the seed artifact, if any."""
    reason: str | None = None
    """Why it is closing, if it wasn't closed on request."""
    attestation: Attestation | None = None
    """Read back from engine and kernel at its start."""
    principal_id: str
    permission_mode: str
    runtime: str
    runner: str | None = None
    """Boot id of the last runner."""
    lives: int = 0
    """Number of earlier runners that were lost."""
    watch: bool = False
    """Whether workspace changes are recorded as events."""


class PoolRow(FrozenModel):
    """The row of a sandbox without a session."""

    id: SandboxId
    state: SandboxState
    tool_uid: int
    image: str
    profile: str
    generation: int


def profile_text(profile: Profile) -> str:
    """Return a profile's JSON as stored in rows; equal profiles give equal texts."""
    return json.dumps(profile.model_dump(mode="json"))


def insert(
    connection: Connection,
    sandbox: SandboxId,
    session: SessionId | None,
    host: HostId,
    *,
    image: str,
    profile: Profile,
    generation: int | None = None,
    state: SandboxState = SandboxState.WANTED,
    source: str | None = None,
    serves: SessionId | None = None,
) -> int:
    """Insert a sandbox row: for a session, the warm pool, a dry run or an MCP server.

    Returns its tool uid, the lowest free one of the host. The caller checks quotas (`domain.needs.reserve_sandbox`).
    `generation`: the worker's, for pool and dry run. `source`: the MCP server's name. `serves`: the only session that
    this server serves.

    Raises:
        NoToolUid: all uids of the host are taken.
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
    row = {
        "id": sandbox,
        "session_id": session,
        "host_id": host,
        "state": state.value,
        "tool_uid": uid,
        "image": image,
        "profile": profile_text(profile),
        "generation": generation,
        "source": source,
        "serves": serves,
    }
    connection.execute(insert_into(sandboxes), row)
    return uid


def of_session(connection: Connection, session: str) -> SandboxRow | None:
    """Return the session's sandbox row."""
    rows = _rows(connection, sandboxes.c.session_id == session)
    return rows[0] if rows else None


def find(connection: Connection, sandbox: str) -> SandboxRow | None:
    """Return the sandbox's row if it serves a session: as its sandbox or as one of its MCP servers."""
    rows: Result[Any] = connection.execute(_SERVING_ROWS.where(sandboxes.c.id == sandbox))
    found = rows.first()
    return _row(found) if found is not None else None


def on_host(connection: Connection, host: HostId, states: tuple[SandboxState, ...]) -> list[SandboxRow]:
    """Return the rows of sessions' sandboxes on the host in these states; no pool rows."""
    wanted = [state.value for state in states]
    return _rows(connection, (sandboxes.c.host_id == host) & sandboxes.c.state.in_(wanted))


def list_live(connection: Connection, host: HostId) -> list[SandboxId]:
    """Return every sandbox of the host that may have a container or volume."""
    query = select(sandboxes.c.id).where(sandboxes.c.host_id == host, sandboxes.c.state != SandboxState.GONE.value)
    return [SandboxId(id_) for id_ in connection.execute(query).scalars()]


def images_in_use(connection: Connection) -> set[str]:
    """Return the image ids that hosts offer or live sandboxes use."""
    living = select(sandboxes.c.image).where(sandboxes.c.state != SandboxState.GONE.value)
    offered = (json.loads(text) for text in connection.execute(select(hosts.c.images)).scalars())
    return {*connection.execute(living).scalars(), *(image for images in offered for image in images.values())}


def pool(connection: Connection, host: HostId) -> list[PoolRow]:
    """Return the host's live rows without a session: warm pool and dry runs."""
    query = select(sandboxes).where(
        sandboxes.c.host_id == host,
        sandboxes.c.session_id.is_(None),
        sandboxes.c.source.is_(None),
        sandboxes.c.state != SandboxState.GONE.value,
    )
    fields = PoolRow.model_fields
    return [
        PoolRow.model_validate({name: value for name, value in row._asdict().items() if name in fields})
        for row in connection.execute(query.order_by(sandboxes.c.id))
    ]


def of_sources(connection: Connection, host: HostId) -> list[SandboxId]:
    """Return the host's sandboxes of MCP servers, including those of an earlier worker."""
    query = select(sandboxes.c.id).where(sandboxes.c.host_id == host, sandboxes.c.source.is_not(None))
    return [SandboxId(id_) for id_ in connection.execute(query).scalars()]


def delete_unowned(connection: Connection, sandbox: SandboxId) -> bool:
    """Delete the row of a removed or lost sandbox without a session; no event refers to it."""
    changed = connection.execute(
        delete(sandboxes).where(
            sandboxes.c.id == sandbox,
            sandboxes.c.session_id.is_(None),
            sandboxes.c.state.in_([SandboxState.CLOSING.value, SandboxState.GONE.value]),
        )
    )
    return changed.rowcount == 1


def change_state(
    connection: Connection,
    sandbox: SandboxId,
    before: tuple[SandboxState, ...],
    after: SandboxState,
    *conditions: ColumnElement[bool],
    unclaimed: bool = False,
    **values: Any,
) -> bool:
    """Compare and set: change the state if it is one of `before` and the conditions hold. Returns False otherwise.

    A closing row never becomes ready again. `unclaimed`: only if no session has it. `values`: other columns to set
    (attestation, reason, ready_at).
    """
    where = [sandboxes.c.id == sandbox, sandboxes.c.state.in_([state.value for state in before]), *conditions]
    if unclaimed:
        where.append(sandboxes.c.session_id.is_(None))
    changed = connection.execute(update(sandboxes).where(*where).values(state=after.value, **values))
    return changed.rowcount == 1


def mark_container_lost(connection: Connection, sandbox: SandboxId) -> bool:
    """Mark a sandbox as stopped after its container was lost and its workspace survived.

    Returns False if it is closing or stopped.
    """
    before = (SandboxState.READY, SandboxState.PAUSED, SandboxState.STOPPING)
    return change_state(connection, sandbox, before, SandboxState.STOPPED, lives=sandboxes.c.lives + 1)


def record_runner(connection: Connection, sandbox: SandboxId, runner: str) -> bool:
    """Store the runner's boot id. Returns True if it replaced another runner, which was lost."""
    is_it = sandboxes.c.id == sandbox
    known = connection.execute(select(sandboxes.c.runner).where(is_it)).scalar()
    if known == runner:
        return False
    lost = 0 if known is None else 1
    values = {"runner": runner, "lives": sandboxes.c.lives + lost}
    connection.execute(update(sandboxes).where(is_it).values(values))
    return bool(lost)


# -- idle time, computed from rows; it starts when the last call ends ------------------------------------------------


class IdleState(FrozenModel):
    """Idle timers of a ready, paused or stopped sandbox, in seconds since the epoch."""

    row: SandboxRow
    ready_at: float
    idle_since: float | None
    """None while a call is queued or running."""
    awaits_person: bool
    """Whether a call is waiting for approval."""


def idle_states(connection: Connection, host: HostId, session: str | None = None) -> list[IdleState]:
    """Return the idle timers of the host's sandboxes, or only of this session's."""
    states = [SandboxState.READY.value, SandboxState.PAUSED.value, SandboxState.STOPPED.value]
    query = _ROWS.add_columns(
        _has_calls_in(*_ACTIVE_CALLS).label("busy"),
        _has_calls_in(_WAITING).label("awaits"),
        _last_end().label("ended_at"),
    ).where(sandboxes.c.host_id == host, sandboxes.c.state.in_(states))
    if session is not None:
        query = query.where(sandboxes.c.session_id == session)
    return [
        IdleState(
            row=_row(row),
            ready_at=row.ready_at,
            idle_since=None if row.busy else max(row.ready_at, row.ended_at or 0.0, row.active_at or 0.0),
            awaits_person=row.awaits,
        )
        for row in connection.execute(query)
    ]


def request_stop(connection: Connection, sandbox: SandboxId) -> bool:
    """Request a stop if the sandbox is ready or paused and no call is queued or running. Returns False otherwise."""
    before = (SandboxState.READY, SandboxState.PAUSED)
    return change_state(connection, sandbox, before, SandboxState.STOPPING, ~_has_calls_in(*_ACTIVE_CALLS))


def begin_stop(connection: Connection, sandbox: SandboxId) -> bool:
    """Begin a requested stop if no call runs. Returns False otherwise.

    Calls claimed after this wait until the stop is done.
    """
    no_call_runs = ~_has_calls_in(CallState.RUNNING.value)
    return change_state(connection, sandbox, (SandboxState.STOPPING,), SandboxState.HALTING, no_call_runs)


def pause(connection: Connection, sandbox: SandboxId, idle_before: float) -> bool:
    """Mark a ready sandbox as paused if it has been idle since `idle_before`. Returns False otherwise."""
    return change_state(
        connection,
        sandbox,
        (SandboxState.READY,),
        SandboxState.PAUSED,
        sandboxes.c.ready_at <= idle_before,
        ~_has_calls_in(*_ACTIVE_CALLS),
        func.coalesce(_last_end(), 0.0) <= idle_before,
        func.coalesce(sandboxes.c.active_at, 0.0) <= idle_before,
    )


def record_activity(connection: Connection, sandbox: SandboxId, now: float) -> None:
    """Record that the sandbox was active at `now` (seconds since the epoch), which restarts its idle time."""
    connection.execute(update(sandboxes).where(sandboxes.c.id == sandbox).values(active_at=now))


def _has_calls_in(*states: str) -> ColumnElement[bool]:
    return exists().where(tool_calls.c.session_id == sandboxes.c.session_id, tool_calls.c.state.in_(states))


def _last_end() -> ScalarSelect[float | None]:
    return (
        select(func.max(tool_calls.c.finished_at))
        .where(tool_calls.c.session_id == sandboxes.c.session_id)
        .scalar_subquery()
    )


_SESSION = (
    sessions.c.tenant_id,
    sessions.c.seed_artifact,
    sessions.c.opened_from,
    sessions.c.principal_id,
    sessions.c.permission_mode,
    sessions.c.runtime,
    sessions.c.watch,
)
_ROWS = select(sandboxes, *_SESSION).join(sessions, sessions.c.id == sandboxes.c.session_id)
_SANDBOX_COLUMNS = [column for column in sandboxes.c if column.name != "session_id"]
_SERVING_ROWS = select(*_SANDBOX_COLUMNS, sessions.c.id.label("session_id"), *_SESSION).join(
    sessions, sessions.c.id == func.coalesce(sandboxes.c.session_id, sandboxes.c.serves)
)


def _rows(connection: Connection, condition: ColumnElement[bool]) -> list[SandboxRow]:
    return [_row(row) for row in connection.execute(_ROWS.where(condition))]


def _row(row: Row[Any]) -> SandboxRow:
    fields = SandboxRow.model_fields
    values = {name: value for name, value in row._asdict().items() if name in fields}
    if values["attestation"]:
        values["attestation"] = json.loads(values["attestation"])
    return SandboxRow.model_validate(values)


def claim_for_session(
    connection: Connection, session: SessionId, host: HostId, *, image: str, profile: Profile
) -> SandboxId | None:
    """Assign a pooled sandbox with exactly this image and profile to the session; None if there is none.

    The row becomes `wanted`, as for a new sandbox; the worker's open then finds the container running. Sandboxes of the
    host's earlier workers are skipped: their runner may be of another version.
    """
    found = _claim_pooled_row(connection, host, image, profile, session_id=session, state=SandboxState.WANTED.value)
    return SandboxId(found.id) if found else None


def claim_for_preview(
    connection: Connection, host: HostId, *, image: str, profile: Profile
) -> tuple[SandboxId, int] | None:
    """Claim a pooled sandbox with exactly this image and profile for a dry run; None if there is none.

    Returns its id and tool uid.
    """
    found = _claim_pooled_row(connection, host, image, profile, state=SandboxState.COPY.value)
    return (SandboxId(found.id), found.tool_uid) if found else None


def _claim_pooled_row(
    connection: Connection, host: HostId, image: str, profile: Profile, **values: Any
) -> Row[Any] | None:
    """Update one free row and return it."""
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
        # On PostgreSQL, concurrent claims take different rows instead of waiting; SQLite has one writer.
        .with_for_update(skip_locked=True, of=sandboxes)
        .scalar_subquery()
    )
    return connection.execute(
        update(sandboxes)
        .where(sandboxes.c.id == free, sandboxes.c.state == SandboxState.POOLED.value)
        .values(**values)
        .returning(sandboxes.c.id, sandboxes.c.tool_uid)
    ).one_or_none()
