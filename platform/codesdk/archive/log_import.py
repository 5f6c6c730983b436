"""Imports an exported log. Each session is imported whole, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

from codesdk.archive import export_format, store
from codesdk.archive.export_format import ArtifactLine, EndLine, EventLine, ExportInvalid, ExportLine, Line, SessionLine
from codesdk.artifacts import StoredArtifact
from codesdk.bootstrap.maintenance import MaintenanceServices
from codesdk.domain.events import EventUnreadable
from codesdk.domain.ids import HostId, IdKind, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.upcasting import read_event
from codesdk.errors import Conflict, ExitCode, Fault
from codesdk.eventlog.audit import AuditAction, AuditTrail
from codesdk.eventlog.log import EVENT_BYTES, PAGE_SIZE
from codesdk.storage.writer import Unit
from codesdk.tenancy import store as tenancy_store
from codesdk.tenancy.principal import Principal, PrincipalKind

PRINCIPAL_NAME = "import"
"""Name of the principal that owns imported sessions. It has no permissions."""
HOST_NAME = "(import)"
"""Name of the placeholder host of imported sessions. Not a valid worker name; hidden from listings."""
ACTOR = "data-directory"
"""Actor in the audit trail: anyone who can write the data directory."""
CHUNK_BYTES = 1024 * 1024
TRY_ANOTHER_COPY = "Use another copy of the export."


class SessionExists(Conflict):
    """A session with that id already exists."""

    code = "SESSION_EXISTS"


class ArtifactExists(Conflict):
    """An artifact with that id already exists."""

    code = "ARTIFACT_EXISTS"


class LogGap(Fault):
    """A session's events are not numbered from 1 without gaps."""

    code = "LOG_GAP"
    exit_code = ExitCode.DATA


class TenantNotMapped(Fault):
    """The exported tenant does not exist here, and no other was named."""

    code = "TENANT_NOT_MAPPED"
    exit_code = ExitCode.USAGE


class BytesMissing(Fault):
    """The artifact directory lacks bytes that the export names."""

    code = "ARTIFACT_BYTES_MISSING"
    exit_code = ExitCode.DATA


class ImportSummary(FrozenModel):
    """Counts of an import."""

    sessions: int = 0
    events: int = 0
    artifacts: int = 0


def import_logs(record: MaintenanceServices, path: Path, tenant: str | None, artifacts: Path | None) -> ImportSummary:
    """Import a file. Sessions keep their ids and event numbers, and are closed.

    Reads the file twice: first to validate all of it, then session by session, each in one transaction that blocks other
    writers.

    `tenant`: name of the tenant that gets all sessions; None: the tenant with the same id. `artifacts`: directory of the
    artifacts' bytes; None: imports no artifacts, so events refer to missing ones.

    Raises:
        ExportInvalid, LogGap, SchemaTooNew: the file is invalid. BytesMissing: the directory is incomplete.
        TenantNotMapped: pass `tenant`. SessionExists, ArtifactExists: it exists already; earlier sessions of the file are
        imported. QuotaExceeded: the tenant has no room for the bytes.
    """
    owners = OwnerMapping(record, tenant)
    kept: dict[SessionId, list[StoredArtifact]] = {}
    with path.open(encoding="utf-8", newline="\n") as file:
        for head, contents in _sessions(file):
            owners.tenant_of(head)
            for line in contents:
                if isinstance(line, ArtifactLine) and artifacts is not None:
                    made = _store_artifact(record, line, owners.tenant_of(head), head.id, artifacts)
                    kept.setdefault(head.id, []).append(made)
    done = ImportSummary()
    with path.open(encoding="utf-8", newline="\n") as file:
        for head, _ in _sessions(file):
            events = partial(_events_at, file, file.tell(), head)
            done = _insert_session(
                record, head, events, kept=kept.get(head.id, []), owner=owners.owner_of(head), done=done
            )
    return done


class OwnerMapping:
    """Maps exported tenants to owners in this installation."""

    def __init__(self, record: MaintenanceServices, tenant: str | None) -> None:
        """`tenant`: name of the tenant for all sessions; None: the one with the exported id."""
        self._record = record
        self._named = tenant

    def tenant_of(self, head: SessionLine) -> TenantId:
        """The tenant that gets the session.

        Raises:
            TenantNotMapped: it does not exist here.
        """
        with self._record.database.read() as connection:
            if self._named is not None:
                found = tenancy_store.tenant_named(connection, self._named)
            else:
                same = tenancy_store.tenant(connection, head.tenant_id)
                found = same.id if same else None
        if found is None:
            asked = f"named {self._named!r}" if self._named is not None else f"{head.tenant_id} ({head.tenant!r})"
            raise TenantNotMapped(
                f"There is no tenant {asked} here, for session {head.id}.",
                advice="Name the tenant to import it into with --tenant.",
            )
        return found

    def owner_of(self, head: SessionLine) -> store.Owner:
        """The tenant, principal and placeholder host of an imported session. Creates the latter two on first use."""
        tenant = self.tenant_of(head)
        ids, now = self._record.ids, self._record.clock.now().timestamp()

        def enter(unit: Unit) -> store.Owner:
            known = tenancy_store.principal_named(unit.connection, tenant, PRINCIPAL_NAME)
            principal = known.id if known else PrincipalId(ids.new(IdKind.PRINCIPAL))
            if known is None:
                made = Principal(
                    id=principal, tenant_id=tenant, name=PRINCIPAL_NAME, roles=(), kind=PrincipalKind.PROGRAM
                )
                tenancy_store.insert_principal(unit.connection, made, now)
            host = store.host_named(unit.connection, HOST_NAME, HostId(ids.new(IdKind.HOST)), now)
            return store.Owner(tenant, principal, host)

        return self._record.writer.run(enter)


def _sessions(file: IO[str]) -> Iterator[tuple[SessionLine, Iterator[EventLine | ArtifactLine]]]:
    """Yield each session with its contents. Consume them before the next session."""
    source = export_format.read(file)
    _, first = next(source, (0, None))
    if not isinstance(first, ExportLine) or first.format != export_format.FORMAT:
        raise ExportInvalid(
            "The file is not an export in a format that this version reads.", advice="Use a newer CodeSDK."
        )
    for number, head in source:
        if not isinstance(head, SessionLine):
            raise ExportInvalid(f"Line {number} is outside of a session.", advice=TRY_ANOTHER_COPY)
        yield head, _contents(head, source)


def _contents(head: SessionLine, source: Iterator[tuple[int, Line]]) -> Iterator[EventLine | ArtifactLine]:
    events, artifacts = 0, []
    for number, line in source:
        match line:
            case EventLine():
                events += 1
                _check_event(head, number, line, events)
                yield line
            case ArtifactLine():
                artifacts.append(line.artifact.id)
                if line.artifact.session_id != head.id:
                    raise ExportInvalid(f"Line {number} is of another session.", advice=TRY_ANOTHER_COPY)
                yield line
            case EndLine(session_id=head.id) if (line.events, line.artifacts) == (events, tuple(artifacts)):
                return
            case _:
                raise ExportInvalid(
                    f"Line {number} does not match the recorded end of session {head.id}.", advice=TRY_ANOTHER_COPY
                )
    raise ExportInvalid(f"The file ends within session {head.id}.", advice=TRY_ANOTHER_COPY)


def _events_at(file: IO[str], place: int, head: SessionLine) -> Iterator[EventLine]:
    """Read the session's events from that position. Called again on each retry of the unit that stores them."""
    file.seek(place)
    return (line for line in _contents(head, export_format.read(file)) if isinstance(line, EventLine))


def _check_event(head: SessionLine, number: int, line: EventLine, expected: int) -> None:
    try:
        event = read_event(line.event)
    except EventUnreadable as error:
        raise ExportInvalid(f"Line {number}: {error.message}", advice=TRY_ANOTHER_COPY) from error
    if event.seq != expected:
        raise LogGap(
            f"Line {number}: event {expected} of session {head.id} is missing here; the line has event {event.seq}.",
            advice=TRY_ANOTHER_COPY,
        )
    if event.trace.session_id != head.id:
        raise ExportInvalid(f"Line {number} is of another session.", advice=TRY_ANOTHER_COPY)


def _store_artifact(
    record: MaintenanceServices, line: ArtifactLine, tenant: TenantId, session: SessionId, artifacts: Path
) -> StoredArtifact:
    source, said = artifacts / line.file_name, line.artifact
    with record.artifacts.spool() as spool:
        try:
            with source.open("rb") as file:
                while piece := file.read(CHUNK_BYTES):
                    spool.write(piece)
        except OSError as error:
            raise BytesMissing(
                f"The bytes of artifact {said.id} are not in {artifacts}.", advice=TRY_ANOTHER_COPY
            ) from error
        if spool.content_hash != said.content_hash:
            raise BytesMissing(f"{source} does not have the bytes of artifact {said.id}.", advice=TRY_ANOTHER_COPY)
        kept = record.artifacts.keep_spool(spool, tenant, session, content_type=said.content_type, name=said.name)
    return kept.model_copy(update={"id": said.id, "created_at": said.created_at})


def _insert_session(
    record: MaintenanceServices,
    head: SessionLine,
    events: Callable[[], Iterator[EventLine]],
    *,
    kept: list[StoredArtifact],
    owner: store.Owner,
    done: ImportSummary,
) -> ImportSummary:
    def work(unit: Unit) -> int:
        if store.has_session(unit.connection, head.id):
            raise SessionExists(f"Session {head.id} is here already.", advice="An import never changes a log.")
        now = record.clock.now().timestamp()
        store.insert_session(unit.connection, head, owner, epoch=record.ids.new(IdKind.REQUEST), now=now)
        count, size, left = 0, 0, events()
        while page := [_event_row(head, line) for line in islice(left, PAGE_SIZE)]:
            store.insert_events(unit.connection, page)
            count += len(page)
            size += sum(len(str(row["body"]).encode()) + EVENT_BYTES for row in page)
        store.set_last_seq(unit.connection, head.id, count, size)
        for artifact in kept:
            if store.has_artifact(unit.connection, artifact.id):
                raise ArtifactExists(f"Artifact {artifact.id} is here already.", advice="Leave the directory out.")
            record.artifacts.record(unit, artifact)
        known = {"tenant": head.tenant_id, "events": count, "artifacts": len(kept)}
        AuditTrail(record.clock).record(
            unit, owner.tenant, AuditAction.SESSION_IMPORTED, actor=ACTOR, target=head.id, **known
        )
        return count

    count = record.writer.run(work)
    return ImportSummary(sessions=done.sessions + 1, events=done.events + count, artifacts=done.artifacts + len(kept))


def _event_row(head: SessionLine, line: EventLine) -> dict[str, object]:
    stored = dict(line.event)
    place = {"session_id": head.id, **{name: stored.pop(name) for name in ("seq", "time", "type")}}
    return {**place, "body": json.dumps(stored, ensure_ascii=False, separators=(",", ":"))}
