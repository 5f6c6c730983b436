"""A session's log straight from the database, in fresh services: no process of ours stands in between."""

from __future__ import annotations

from contextlib import closing

from codesdk.cli.daemon import NotRunning
from codesdk.domain.clock import SystemClock
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import PAGE, Log
from codesdk.sessions import SessionUnknown
from codesdk.settings import Settings
from codesdk.storage.database import Database


def read_record(settings: Settings, session: str) -> list[Event]:
    """All events, oldest first.

    Raises:
        SessionUnknown: the database has no such session, or no event of it.
        StorageUnavailable: the database does not answer.
    """
    place = settings.data_dir / "codesdk.db"
    if not settings.database_url and not place.exists():
        raise NotRunning(f"There is no database in {settings.data_dir}.", advice="Name another --data-dir.")
    with closing(Database(settings.resolved_database_url())) as database:
        log = Log(database, SystemClock(), LocalHints())
        events: list[Event] = []
        while page := log.read(SessionId(session), events[-1].seq if events else 0):
            events += page
            if len(page) < PAGE:
                break
    if not events:
        raise SessionUnknown(f"The database holds no session {session}.", advice="See `codesdk sessions list`.")
    return events
