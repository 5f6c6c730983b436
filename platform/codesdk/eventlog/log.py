"""Appends and reads events. `seq` is dense per session, because the transaction that stores the event assigns it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from codesdk.domain.clock import Clock, to_rfc3339
from codesdk.domain.events import SCHEMA_VERSION, Event, EventType, EventUnreadable, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.upcasting import read_event
from codesdk.errors import ExitCode, Fault
from codesdk.eventlog import store
from codesdk.eventlog.hints import Hints
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

PAGE_SIZE = 500
"""Maximum events returned by one read."""

PAGE_BYTES = 1024 * 1024
"""Bodies of a page: it ends with the event that exceeds this, so that many readers fit into a process's memory."""

MAX_EVENT_BYTES = 256 * 1024
"""Maximum size of one stored event.

The producer stores larger inputs, results, outputs and raw runtime frames as artifacts before its unit runs: bytes
first, then the row that refers to them.
"""
EVENT_BYTES = 128
"""Bytes that an event counts beyond its body: ids, time, type and index entries."""
CALL_END_TYPES = frozenset({EventType.CALL_COMPLETED, EventType.CALL_DENIED})
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class EventTooLarge(Fault):
    """An event exceeds the size limit; nothing of its unit is stored."""

    code = "EVENT_TOO_LARGE"
    status = 413
    exit_code = ExitCode.DATA


class EventDraft(FrozenModel):
    """An event without a `seq` yet."""

    type: EventType
    trace: Trace
    runtime: RuntimeInfo
    payload: dict[str, Any]


class EncodedEvent(NamedTuple):
    """A draft encoded for storage, except for `seq`. Encode before the unit, so that other units don't wait for it."""

    session: SessionId
    row: store.NewEventRow
    ended: ToolCallId | None
    """The call that the event ends, if any; sent with the hint."""


class EventBatch(NamedTuple):
    """A page of a log, as far as this version can read it."""

    events: list[Event]
    is_last: bool
    """There were no events after these."""
    fault: Fault | None = None
    """Why the event after these can't be read; None if all could."""


class _CommitHint:
    """The hint for a session after a commit: it has grown, and these calls ended."""

    def __init__(self, hints: Hints, session: SessionId) -> None:
        self.session = session
        self.ended: list[ToolCallId] = []
        self._hints = hints

    def __call__(self) -> None:
        if not self.ended:
            self._hints.publish(self.session)
        for call in self.ended:
            self._hints.publish_call_end(self.session, call)


class EventLog:
    """The log of every session in one database."""

    def __init__(self, database: Database, clock: Clock, hints: Hints) -> None:
        self.database = database
        self._clock = clock
        self._hints = hints

    def encode(self, draft: EventDraft) -> EncodedEvent:
        """Encode a draft for `append` on the caller's thread.

        Raises:
            EventTooLarge, ValueError, TypeError: as `append`.
        """
        body, size = _encode_body(draft)
        row = store.NewEventRow(to_rfc3339(self._clock.now()), draft.type.value, body, size + EVENT_BYTES)
        ended = ToolCallId(draft.payload["tool_call_id"]) if draft.type in CALL_END_TYPES else None
        return EncodedEvent(draft.trace.session_id, row, ended)

    def append(self, unit: Unit, draft: EventDraft | EncodedEvent, *, row_bytes: int = 0) -> None:
        """Append the event. It becomes visible with the unit's commit.

        Events of one unit keep their order. Readers of the log are notified after the commit. `row_bytes`: size of what
        the unit writes into other rows for the session; it counts as the log's.

        Raises:
            EventTooLarge: the event exceeds `MAX_EVENT_BYTES`.
            ValueError, TypeError: the payload can't be encoded as JSON.
        """
        session, row, ended = draft if isinstance(draft, EncodedEvent) else self.encode(draft)
        if row_bytes:
            row = row._replace(counts=row.counts + row_bytes)
        unit.batch(store.insert, session).append(row)
        hint = next((each for each in unit.effects if isinstance(each, _CommitHint) and each.session == session), None)
        if hint is None:
            hint = _CommitHint(self._hints, session)
            unit.after_commit(hint)
        if ended is not None:
            hint.ended.append(ended)

    def read(self, session: SessionId, after: int = 0, limit: int = PAGE_SIZE) -> list[Event]:
        """Return committed events with `seq` above `after`, oldest first: at most `limit`, and about `PAGE_BYTES`.

        Fewer than `limit` need not be the last ones; an empty list is the end.

        Raises:
            SchemaTooNew, EventUnreadable: this version can't read one of them.
        """
        page = self.page(session, after, limit)
        if page.fault is not None:
            raise page.fault
        return page.events

    def page(self, session: SessionId, after: int = 0, limit: int = PAGE_SIZE) -> EventBatch:
        """Like `read`, but stops before an event that can't be read instead of failing."""
        with self.database.read() as connection:
            rows, is_last = store.page(connection, session, after, min(limit, PAGE_SIZE), PAGE_BYTES)
        events: list[Event] = []
        for row in rows:
            try:
                events.append(_decode_event(row))
            except Fault as fault:
                return EventBatch(events, is_last, fault)
        return EventBatch(events, is_last)

    def head(self, session: SessionId) -> int:
        """Return the newest `seq`; 0 for an empty or unknown session."""
        with self.database.read() as connection:
            return store.head(connection, session)

    def position(self, session: SessionId) -> tuple[str, int]:
        """Return the log's epoch and newest `seq`, to validate cursors. Empty and 0 for an unknown session."""
        with self.database.read() as connection:
            return store.log_position(connection, session)

    def heads(self, sessions: Sequence[SessionId]) -> dict[SessionId, int]:
        """Return the newest `seq` of each of these sessions, in one query."""
        with self.database.read() as connection:
            return store.heads(connection, sessions)


def _encode_body(draft: EventDraft) -> tuple[str, int]:
    """The body and its size in bytes."""
    # Encoding errors must surface here, in the caller's unit: a failing insert would fail the whole group of units.
    runtime = draft.runtime
    plain = runtime.raw is None and runtime.raw_ref is None
    said = _encode_runtime(runtime) if plain else _encode_part(runtime)
    text = (
        f'{{"schema_version":{SCHEMA_VERSION},"trace":{_encode_trace(draft.trace)},"runtime":{said},'
        f'"payload":{_ENCODER.encode(draft.payload)}}}'
    )
    size = len(text.encode())
    if size > MAX_EVENT_BYTES:
        raise EventTooLarge(
            f"An event of type {draft.type.value} has {size} bytes; the log takes {MAX_EVENT_BYTES}.",
            advice="Store large data as an artifact, and refer to it in the event.",
        )
    return text, size


def _encode_part(part: FrozenModel) -> str:
    return _ENCODER.encode(part.model_dump(exclude_none=True))


# The events of a call share trace and runtime, so each is encoded once.
_encode_trace = lru_cache(1024)(_encode_part)
_encode_runtime = lru_cache(64)(_encode_part)


def _decode_event(row: store.EventRow) -> Event:
    return read_event(decode_row(row))


def decode_row(row: store.EventRow) -> dict[str, Any]:
    """Return a stored event as one object, in its stored schema version.

    Raises:
        EventUnreadable: the row's body is not a JSON object.
    """
    try:
        return {"seq": row.seq, "time": row.time, "type": row.type, **json.loads(row.body)}
    except (ValueError, TypeError, RecursionError) as error:
        raise EventUnreadable(f"Event {row.seq} cannot be read: its row is not a JSON object.") from error
