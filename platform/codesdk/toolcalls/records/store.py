"""SQL of calls. Every change of state is conditional on the state before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Executable,
    Float,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import CallIdentity, CallState, IllegalTransition, ToolCall, check_transition
from codesdk.domain.decisions import Classification, Evaluation, Obligations
from codesdk.domain.ids import ApprovalId, GrantId, HostId, SessionId, TenantId, ToolCallId
from codesdk.domain.records import SessionPriority
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileFingerprint
from codesdk.storage.database import database_now
from codesdk.storage.expressions import in_list
from codesdk.storage.faults import WriteConflict
from codesdk.storage.schema import hosts, principals, sandboxes, sessions, tenants, tool_calls
from codesdk.tenancy.store import subject_from
from codesdk.toolcalls.previews.preview import Preview
from codesdk.toolcalls.records.call_record import CallDurations, CallRecord, EndedCall, SessionFacts

UNOWNED = 0
"""Generation of a call that no worker owns: workers start at 1. It ends with its session."""
FILE_MARKS = TypeAdapter(tuple[FileFingerprint, ...])
# Statements are built once: building one costs several times what SQLite needs to run it.
CALLS = (
    select(
        tool_calls,
        (tenants.c.suspended_at.is_not(None) | principals.c.disabled_at.is_not(None)).label("barred"),
        tenants.c.yolo,
        sessions.c.principal_id,
        sessions.c.permission_mode,
        sessions.c.runtime,
        sessions.c.labels,
        sessions.c.policy_hash,
        sessions.c.image,
        sessions.c.profile,
        sessions.c.state.label("session_state"),
        sessions.c.log_bytes,
        principals.c.roles,
    )
    .join(sessions, sessions.c.id == tool_calls.c.session_id)
    .join(principals, principals.c.id == sessions.c.principal_id)
    .join(tenants, tenants.c.id == sessions.c.tenant_id)
)
_FACTS = (
    select(sessions, sessions.c.id.label("session_id"), principals.c.roles, tenants.c.yolo)
    .join(principals, principals.c.id == sessions.c.principal_id)
    .join(tenants, tenants.c.id == sessions.c.tenant_id)
    .where(sessions.c.id == bindparam("session"))
)
_INSERT = insert_into(tool_calls).values(
    requested_at=database_now(),
    queued_at=case((bindparam("queues", type_=Boolean), database_now()), else_=null()),
)
_IN_SCOPE = (
    (tool_calls.c.id == bindparam("call"))
    & (tool_calls.c.session_id == bindparam("session"))
    & (tool_calls.c.tenant_id == bindparam("tenant"))
)
_FIND = CALLS.where(tool_calls.c.id == bindparam("call"))
_FIND_IN = CALLS.where(_IN_SCOPE)
# In a unit of work a call is held from its reading on: on PostgreSQL another process could change it before our write.
# SQLite has one writer and knows no such clause.
_FIND_FOR_UPDATE = _FIND.with_for_update(of=tool_calls)
_FIND_IN_FOR_UPDATE = _FIND_IN.with_for_update(of=tool_calls)
_OPEN = select(sessions.c.state).where(sessions.c.id == bindparam("session"))
_ENDED = select(
    tool_calls.c.state,
    tool_calls.c.attempt,
    tool_calls.c.input_hash,
    tool_calls.c.runtime_tool_call_id,
    tool_calls.c.result,
).where(_IN_SCOPE)
_NEXT_QUEUED = (
    CALLS.where(
        tool_calls.c.host_id == bindparam("host"),
        tool_calls.c.tenant_id == bindparam("tenant"),
        tool_calls.c.state == CallState.QUEUED.value,
        tool_calls.c.held.is_(False),
    )
    .order_by(tool_calls.c.batch, tool_calls.c.queued_at, tool_calls.c.id)
    .limit(1)
    .with_for_update(skip_locked=True, of=tool_calls)
)
_CANCEL_REQUESTED = CALLS.where(
    tool_calls.c.host_id == bindparam("host"),
    tool_calls.c.state == CallState.RUNNING.value,
    tool_calls.c.cancel_requested.is_(True),
)
_BY_CLIENT_ID = CALLS.where(
    tool_calls.c.session_id == bindparam("session"), tool_calls.c.runtime_tool_call_id == bindparam("given")
)
_later = tool_calls.alias("later")
_LOST_EQUAL = (
    select(tool_calls.c.id, func.count().over().label("together"))
    .where(
        tool_calls.c.session_id == bindparam("session"),
        tool_calls.c.doubtful,
        tool_calls.c.name == bindparam("name"),
        tool_calls.c.input_hash == bindparam("input_hash"),
        ~exists().where(
            _later.c.session_id == tool_calls.c.session_id,
            _later.c.state == CallState.COMPLETED.value,
            _later.c.name == tool_calls.c.name,
            _later.c.input_hash == tool_calls.c.input_hash,
            _later.c.doubtful.is_(False),
            _later.c.requested_at >= tool_calls.c.finished_at,
        ),
    )
    .order_by(tool_calls.c.finished_at, tool_calls.c.id)
    .limit(1)
)
# One row and one input for each call, however many attempts it took. Ids sort by time, and so does the primary key.
_SINCE = tool_calls.c.requested_at > database_now() - bindparam("seconds", type_=Float)
_OF_TENANT = tool_calls.c.tenant_id == bindparam("tenant")
_PAGE = bindparam("page", type_=Integer)
_RECORDED = CALLS.where(_SINCE, tool_calls.c.id > bindparam("start")).order_by(tool_calls.c.id).limit(_PAGE)
_NEWEST = (
    CALLS.where(_SINCE, _OF_TENANT, tool_calls.c.id < bindparam("start")).order_by(tool_calls.c.id.desc()).limit(_PAGE)
)
_COUNT = select(func.count()).select_from(tool_calls).where(_SINCE, _OF_TENANT)
_SANDBOX_LIVES = select(sandboxes.c.lives).where(sandboxes.c.session_id == tool_calls.c.session_id).scalar_subquery()
_QUEUED_S = (tool_calls.c.started_at - tool_calls.c.queued_at).label("queued_s")
_RAN_S = (tool_calls.c.finished_at - tool_calls.c.started_at).label("ran_s")
_TIMESTAMPS: dict[CallState, str] = {
    CallState.QUEUED: "queued_at",
    CallState.RUNNING: "started_at",
    CallState.COMPLETED: "finished_at",
    CallState.DENIED: "finished_at",
}


class CallScope(NamedTuple):
    """Where a caller may look for a call: one session of one tenant."""

    tenant: TenantId
    session: SessionId


def session_facts(connection: Connection, session: SessionId) -> SessionFacts | None:
    """What decides about calls of this session."""
    row = connection.execute(_FACTS, {"session": session}).one_or_none()
    if row is None:
        return None
    return SessionFacts(
        subject=subject_from(row),
        host_id=HostId(row.host_id),
        image=row.image,
        profile=json.loads(row.profile),
        open=row.state == "open",
        batch=row.priority == SessionPriority.BATCH.value,
        log_bytes=row.log_bytes,
    )


def insert(
    connection: Connection,
    call: ToolCall,
    facts: SessionFacts,
    *,
    input_text: str,
    schema_hash: str,
    serial: bool,
    state: CallState,
    sources: tuple[Evaluation, ...],
    grant: GrantId | None = None,
) -> None:
    """Add a call: waiting for its decision, or queued where nothing stands against it.

    `input_text`: its canonical input. It is written out before the unit, which holds up every other one.
    """
    if state is not CallState.WAITING:
        check_transition(CallState.WAITING, state)
    identity = call.identity
    row = {
        "id": identity.tool_call_id,
        "attempt": identity.attempt,
        "session_id": facts.subject.session_id,
        "tenant_id": facts.subject.tenant_id,
        "host_id": facts.host_id,
        "runtime_tool_call_id": identity.runtime_tool_call_id,
        "name": call.name,
        "input": input_text,
        "input_hash": identity.input_hash,
        "schema_hash": schema_hash,
        "serial": serial,
        "batch": facts.batch,
        "state": state.value,
        "sources": sources_text(sources),
        "queues": state is CallState.QUEUED,
        "grant_id": grant,
    }
    connection.execute(_INSERT, row)


def find(connection: Connection, call: ToolCallId, *, hold: bool = False) -> CallRecord | None:
    """One call with what its session says, for our own work on it; whoever comes from outside uses `find_in_scope`.

    `hold`: for a unit that changes it; nobody else does until the commit.
    """
    row = connection.execute(_FIND_FOR_UPDATE if hold else _FIND, {"call": call}).one_or_none()
    return _record_of(row) if row else None


def lock(connection: Connection, call: ToolCallId) -> CallRecord:
    """A call that exists, locked for the rest of the transaction."""
    stored = find(connection, call, hold=True)
    assert stored is not None  # noqa: S101 (a foreign key, or inserted in this unit)
    return stored


def find_in_scope(connection: Connection, place: CallScope, call: str, *, hold: bool = False) -> CallRecord | None:
    """One call of that session, with what the session says. `hold`: as with `find`."""
    row = connection.execute(_FIND_IN_FOR_UPDATE if hold else _FIND_IN, {"call": call, **place._asdict()}).one_or_none()
    return _record_of(row) if row else None


def find_ended(connection: Connection, place: CallScope, call: ToolCallId) -> EndedCall | None:
    """How the session's call ended; None while it has not. Reads only what the answer needs."""
    row = connection.execute(_ENDED, {"call": call, **place._asdict()}).one_or_none()
    if row is None or row.result is None:
        return None
    identity = CallIdentity(
        tool_call_id=ToolCallId(call),
        runtime_tool_call_id=row.runtime_tool_call_id,
        attempt=row.attempt,
        input_hash=row.input_hash,
    )
    return EndedCall(identity=identity, state=CallState(row.state), result=ToolResult.model_validate_json(row.result))


def find_by_client_id(connection: Connection, session: SessionId, given: str) -> CallRecord | None:
    """The session's call with that client-given id."""
    return next(select_calls(connection, _BY_CLIENT_ID, {"session": session, "given": given}), None)


def find_equal(
    connection: Connection, session: SessionId, call: ToolCall, states: tuple[CallState, ...]
) -> CallRecord | None:
    """The session's newest call of the same tool and input in one of these states that nobody has cancelled."""
    return next(select_calls(connection, _newest_equal(states), _equality(session, call)), None)


def describe_lost_equal(connection: Connection, session: SessionId, call: ToolCall) -> str | None:
    """The session's lost calls of the same tool and input: the first one's id and how many more. None: there is none.

    A lost call counts until an equal call that was requested after its end completes with a known outcome.
    """
    row = connection.execute(_LOST_EQUAL, _equality(session, call)).one_or_none()
    if row is None:
        return None
    return f"{row.id} and {row.together - 1} more" if row.together > 1 else str(row.id)


def list_recorded(connection: Connection, seconds: float, *, start: str, page: int) -> list[CallRecord]:
    """All tenants' calls of the last `seconds`, oldest first, after the id `start`."""
    return list(select_calls(connection, _RECORDED, {"seconds": seconds, "start": start, "page": page}))


def list_newest(connection: Connection, seconds: float, tenant: TenantId, *, start: str, page: int) -> list[CallRecord]:
    """One tenant's calls of the last `seconds`, newest first, before the id `start`."""
    values = {"seconds": seconds, "tenant": tenant, "start": start, "page": page}
    return list(select_calls(connection, _NEWEST, values))


def count_recorded(connection: Connection, seconds: float, tenant: TenantId) -> int:
    """How many calls of the tenant the last `seconds` have."""
    return connection.execute(_COUNT, {"seconds": seconds, "tenant": tenant}).scalar_one()


def next_queued(connection: Connection, host: HostId, tenant: TenantId) -> CallRecord | None:
    """The tenant's first call on that host that may start now: an interactive one, else the oldest."""
    row = connection.execute(_NEXT_QUEUED, {"host": host, "tenant": tenant}).one_or_none()
    return _record_of(row) if row else None


def select_calls(connection: Connection, query: Select[Any], values: dict[str, Any]) -> Iterator[CallRecord]:
    """The calls that a query on `CALLS` finds, as they are read."""
    return map(_record_of, connection.execute(query, values))


def list_cancel_requested(connection: Connection, host: HostId) -> list[CallRecord]:
    """Running calls of that host that somebody wants ended."""
    return [_record_of(row) for row in connection.execute(_CANCEL_REQUESTED, {"host": host})]


def list_in_state(
    connection: Connection,
    state: CallState,
    *,
    host: HostId | None = None,
    session: SessionId | None = None,
    hold: bool = False,
) -> list[CallRecord]:
    """Calls in that state, oldest first. `hold`: for a unit that changes them."""
    query = CALLS.where(tool_calls.c.state == state.value)
    if host is not None:
        query = query.where(tool_calls.c.host_id == host)
    if session is not None:
        query = query.where(tool_calls.c.session_id == session)
    query = query.order_by(tool_calls.c.requested_at, tool_calls.c.id)
    if hold:
        query = query.with_for_update(of=tool_calls)
    return [_record_of(row) for row in connection.execute(query)]


def list_of_session(
    connection: Connection,
    place: CallScope,
    *,
    state: CallState | None,
    tool: str | None,
    before: str | None,
    limit: int,
) -> list[CallRecord]:
    """The session's calls, newest first: those before the call `before`. Ids sort by time."""
    query = CALLS.where(tool_calls.c.tenant_id == place.tenant, tool_calls.c.session_id == place.session)
    if state is not None:
        query = query.where(tool_calls.c.state == state.value)
    if tool is not None:
        query = query.where(tool_calls.c.name == tool)
    if before is not None:
        query = query.where(tool_calls.c.id < before)
    return [_record_of(row) for row in connection.execute(query.order_by(tool_calls.c.id.desc()).limit(limit))]


def check_open(connection: Connection, session: SessionId) -> None:
    """A last step of a unit that took the session for open. The log's counter is locked by then: nobody closes it now.

    SQLite has one writer: there it is as the unit has read it.

    Raises:
        Overtaken: it was closed since.
    """
    if connection.dialect.name == "sqlite":
        return
    if connection.execute(_OPEN, {"session": session}).scalar() != "open":
        raise WriteConflict(f"The session {session} was closed.", advice="Open another session.")


def set_digest(connection: Connection, call: ToolCallId, digest: str) -> None:
    """Remember what an approval of this call binds."""
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(digest=digest))


def add_source(connection: Connection, stored_sources: tuple[Evaluation, ...], call: ToolCallId) -> None:
    """Keep the voices so far."""
    text = sources_text(stored_sources)
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(sources=text))


def adopt(connection: Connection, host: HostId, generation: int) -> None:
    """Running calls of the host now belong to this generation of worker; an older one can no longer end them."""
    connection.execute(
        update(tool_calls)
        .where(tool_calls.c.host_id == host, tool_calls.c.state == CallState.RUNNING.value)
        .values(generation=generation)
    )


def transition(
    connection: Connection,
    identity: CallIdentity,
    before: CallState,
    after: CallState,
    *,
    owned_by: int | None = None,
    **values: Any,
) -> CallDurations | None:
    """Take one lawful step. `owned_by`: the generation of worker that must still hold the call.

    Returns how long it lasted where it ran and is completed.

    Raises:
        IllegalTransition: the step is not lawful, or the row was no longer in `before`; nothing is written.
    """
    check_transition(before, after)
    step = {
        "call": identity.tool_call_id,
        "number": identity.attempt,
        "before": before.value,
        "after": after.value,
        **({} if owned_by is None else {"held_by": owned_by}),
        **{f"new_{name}": value for name, value in values.items()},
    }
    changed = connection.execute(_transition(tuple(sorted(values)), after, owned_by is not None), step)
    row = changed.one_or_none() if after is CallState.COMPLETED else None
    if row is None and (after is CallState.COMPLETED or changed.rowcount != 1):
        raise IllegalTransition(f"Call {identity.tool_call_id} is no longer {before}, so it cannot become {after}.")
    return CallDurations(max(0.0, row.queued_s or 0.0), max(0.0, row.ran_s or 0.0)) if row is not None else None


def check_owned(connection: Connection, identity: CallIdentity, generation: int) -> None:
    """Let a worker write of a call that it still runs.

    Raises:
        IllegalTransition: it ended, or a newer worker took it over.
    """
    held = select(tool_calls.c.id).where(
        tool_calls.c.id == identity.tool_call_id,
        tool_calls.c.attempt == identity.attempt,
        tool_calls.c.state == CallState.RUNNING.value,
        owned_by(generation),
    )
    if connection.execute(held).one_or_none() is None:
        raise IllegalTransition(f"Call {identity.tool_call_id} is not this worker's any more.")


def owned_by(generation: int | BindParameter[int]) -> ColumnElement[bool]:
    """Condition: that generation of worker owns the call, and still owns the host.

    Fences off a worker that was frozen and replaced, even before its successor has adopted the call.
    """
    given = literal(generation, Integer) if isinstance(generation, int) else generation
    is_current = exists().where(hosts.c.id == tool_calls.c.host_id, hosts.c.generation == given)
    return and_(tool_calls.c.generation == given, or_(given == UNOWNED, is_current))


def request_cancel(connection: Connection, call: ToolCallId) -> None:
    """Note the wish; the worker that runs it acts on it."""
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(cancel_requested=True))


def release_client_id(connection: Connection, call: ToolCallId) -> None:
    """Forget the client's id of a call that never began, so that the id can be given again. Its events keep it."""
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(runtime_tool_call_id=None))


def sources_text(sources: tuple[Evaluation, ...]) -> str:
    """The voices, as a row has them."""
    return json.dumps([source.model_dump(exclude_none=True) for source in sources])


def _equality(session: SessionId, call: ToolCall) -> dict[str, str]:
    return {"session": session, "name": call.name, "input_hash": call.identity.input_hash}


@cache
def _newest_equal(states: tuple[CallState, ...]) -> Select[Any]:
    return (
        CALLS.where(
            tool_calls.c.session_id == bindparam("session"),
            tool_calls.c.name == bindparam("name"),
            tool_calls.c.input_hash == bindparam("input_hash"),
            in_list(tool_calls.c.state, states),
            tool_calls.c.cancel_requested.is_(False),
        )
        .order_by(tool_calls.c.requested_at.desc(), tool_calls.c.id.desc())
        .limit(1)
    )


@cache
def _transition(names: tuple[str, ...], after: CallState, held: bool) -> Executable:
    """The statement of one kind of step; there are a handful."""
    step = (
        update(tool_calls)
        .where(
            tool_calls.c.id == bindparam("call"),
            tool_calls.c.attempt == bindparam("number"),
            tool_calls.c.state == bindparam("before"),
            owned_by(bindparam("held_by", type_=Integer)) if held else true(),
        )
        .values(
            {
                "state": bindparam("after"),
                _TIMESTAMPS[after]: database_now(),
                **({"life": _SANDBOX_LIVES} if after is CallState.RUNNING else {}),
                **{name: bindparam(f"new_{name}") for name in names},
            }
        )
    )
    return step.returning(_QUEUED_S, _RAN_S) if after is CallState.COMPLETED else step


def _record_of(row: Row[Any]) -> CallRecord:
    identity = CallIdentity(
        tool_call_id=ToolCallId(row.id),
        runtime_tool_call_id=row.runtime_tool_call_id,
        attempt=row.attempt,
        input_hash=row.input_hash,
    )
    return CallRecord(
        call=ToolCall(identity=identity, name=row.name, input=json.loads(row.input)),
        tenant_id=TenantId(row.tenant_id),
        host_id=HostId(row.host_id),
        subject=subject_from(row),
        schema_hash=row.schema_hash,
        serial=row.serial,
        state=CallState(row.state),
        digest=row.digest,
        sources=tuple(Evaluation.model_validate(source) for source in json.loads(row.sources)),
        cancel_requested=row.cancel_requested,
        image=row.image,
        profile=json.loads(row.profile),
        session_open=row.session_state == "open",
        log_bytes=row.log_bytes,
        grant_id=GrantId(row.grant_id) if row.grant_id else None,
        obligations=Obligations.model_validate_json(row.obligations) if row.obligations else Obligations(),
        barred=row.barred,
        result=ToolResult.model_validate_json(row.result) if row.result else None,
        generation=row.generation,
        behaviour_hash=row.behaviour_hash,
        classification=Classification(row.classification) if row.classification else None,
        life=row.life,
        preparing=ApprovalId(row.preparing) if row.preparing else None,
        bound=FILE_MARKS.validate_json(row.bound_files) if row.bound_files else (),
        preview_tries=row.preview_tries,
        preview=Preview.model_validate_json(row.preview) if row.preview else None,
        requested_at=row.requested_at,
    )
