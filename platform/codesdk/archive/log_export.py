"""Exports session logs as JSON lines in bounded memory. A log that grows is exported up to its current end."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from pathlib import Path
from typing import IO

from codesdk.archive import export_format, store
from codesdk.archive.export_format import ArtifactLine, EndLine, EventLine, ExportLine
from codesdk.artifacts import StoredArtifact
from codesdk.bootstrap.maintenance import MaintenanceServices
from codesdk.domain.events import SCHEMA_VERSION
from codesdk.domain.ids import SessionId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog import store as log_store
from codesdk.eventlog.log import PAGE_SIZE, decode_row
from codesdk.sessions import SessionUnknown


class ExportSummary(FrozenModel):
    """Counts of an export."""

    sessions: int = 0
    events: int = 0
    artifacts: int = 0


def export_logs(
    record: MaintenanceServices, file: IO[str], session: str | None, artifacts: Path | None
) -> ExportSummary:
    """Export one session's log, or all with None.

    `artifacts`: a directory that gets the bytes of every artifact that the sessions own, each as a file named by its hash.

    Raises:
        SessionUnknown: no session has that id.
        EventUnreadable, ArtifactDamaged: stored data is damaged. The file lacks an end line, so imports reject it.
    """
    with record.database.read() as connection:
        wanted = [SessionId(session)] if session is not None else store.all_sessions(connection)
        if session is not None and not store.has_session(connection, session):
            raise SessionUnknown(f"The database holds no session {session}.", advice="See `codesdk sessions list`.")
    if artifacts is not None:
        artifacts.mkdir(parents=True, exist_ok=True, mode=0o700)
    export_format.write(file, ExportLine(schema_version=SCHEMA_VERSION, version=version("codesdk")))
    done = ExportSummary()
    for one in wanted:
        done = _export_session(record, file, one, artifacts, done)
    return done


def _export_session(
    record: MaintenanceServices, file: IO[str], session: SessionId, artifacts: Path | None, done: ExportSummary
) -> ExportSummary:
    with record.database.read() as connection:
        head = store.session_line(connection, session)
    if head is None:
        raise SessionUnknown(f"Session {session} was removed meanwhile.", advice="Export again.")
    export_format.write(file, head)
    events = _export_events(record, file, session)
    # After the events, since artifacts are recorded before events that name them.
    owned = record.artifacts.of_session(session)
    for artifact in owned:
        line = ArtifactLine(artifact=artifact.public())
        export_format.write(file, line)
        if artifacts is not None:
            _copy_artifact(record, artifact, artifacts / line.file_name)
    export_format.write(file, EndLine(session_id=session, events=events, artifacts=tuple(one.id for one in owned)))
    return ExportSummary(sessions=done.sessions + 1, events=done.events + events, artifacts=done.artifacts + len(owned))


def _export_events(record: MaintenanceServices, file: IO[str], session: SessionId) -> int:
    after = 0
    while True:
        with record.database.read() as connection:
            page = log_store.after(connection, session, after, PAGE_SIZE)
        for row in page:
            export_format.write(file, EventLine(event=decode_row(row)))
            after = row.seq
        if len(page) < PAGE_SIZE:
            return after


def _copy_artifact(record: MaintenanceServices, artifact: StoredArtifact, target: Path) -> None:
    if target.exists():
        return  # named by hash, so it holds the same bytes
    fresh = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as out:
            for piece in record.artifacts.stream(artifact):
                out.write(piece)
        fresh.rename(target)
    finally:
        fresh.unlink(missing_ok=True)
