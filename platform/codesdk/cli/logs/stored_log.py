"""Reads a session's log directly from the database, independent of running processes."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from codesdk.cli.api_client import NotRunning
from codesdk.domain.calls import CallState
from codesdk.domain.clock import SystemClock
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.sessions import SessionUnknown
from codesdk.sessions import store as session_store
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store as call_store
from codesdk.toolcalls.records.call_record import CallRecord


class StoredLog(NamedTuple):
    """A session's events and the stored state of its calls."""

    events: list[Event]
    head: int
    """The `seq` of the newest event according to the session's row."""
    calls: list[CallRecord]
    imported: bool
    """Whether the log was imported, and so has no stored calls."""


def read_stored_log(settings: Settings, session: str) -> StoredLog:
    """Read all events, oldest first, and the rows of the calls.

    Raises:
        SessionUnknown: the database has no such session, or no events of it.
        StorageUnavailable: the database doesn't answer.
        SchemaTooNew, EventUnreadable: this version can't read an event.
    """
    if not settings.has_database():
        raise NotRunning(f"There is no database in {settings.data_dir}.", advice="Name another --data-dir.")
    session_id = SessionId(session)
    with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
        log = EventLog(database, SystemClock(), LocalHints())
        with database.read() as connection:
            imported = session_store.imported_at(connection, session_id) is not None
            calls = [
                call for state in CallState for call in call_store.list_in_state(connection, state, session=session_id)
            ]
        events: list[Event] = []
        while page := log.read(session_id, events[-1].seq if events else 0):
            events += page
        head = log.head(session_id)
    if not events:
        raise SessionUnknown(f"The database has no session {session}.", advice="See `codesdk sessions list`.")
    return StoredLog(events, head, calls, imported)
