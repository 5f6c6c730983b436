"""A session's log straight from the database, in fresh services: no process of ours stands in between."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from codesdk.cli.api_client import NotRunning
from codesdk.domain.calls import CallState
from codesdk.domain.clock import SystemClock
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import PAGE_SIZE, EventLog
from codesdk.sessions import SessionUnknown
from codesdk.sessions import store as session_store
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store as call_store
from codesdk.toolcalls.records.call_record import CallRecord


class StoredLog(NamedTuple):
    """A session's log, and what the rows beside it say."""

    events: list[Event]
    head: int
    """The number of the newest event, as the session's row has it."""
    calls: list[CallRecord]
    imported: bool
    """Whether the log came from an export, and so without the rows that stood beside it."""


def read_stored_log(settings: Settings, session: str) -> StoredLog:
    """All events, oldest first, and the rows of the calls.

    Raises:
        SessionUnknown: the database has no such session, or no event of it.
        StorageUnavailable: the database does not answer.
        SchemaTooNew, EventUnreadable: an event cannot be read by this version.
    """
    place = settings.data_dir / "codesdk.db"
    if not settings.database_url and not place.exists():
        raise NotRunning(f"There is no database in {settings.data_dir}.", advice="Name another --data-dir.")
    of = SessionId(session)
    with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
        log = EventLog(database, SystemClock(), LocalHints())
        with database.read() as connection:
            imported = session_store.imported_at(connection, of) is not None
            calls = [call for state in CallState for call in call_store.list_in_state(connection, state, session=of)]
        events: list[Event] = []
        while page := log.read(of, events[-1].seq if events else 0):
            events += page
            if len(page) < PAGE_SIZE:
                break
        head = log.head(of)
    if not events:
        raise SessionUnknown(f"The database holds no session {session}.", advice="See `codesdk sessions list`.")
    return StoredLog(events, head, calls, imported)
