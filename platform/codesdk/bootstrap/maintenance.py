"""The record alone, without policy, queue or engine: what keeping house needs, beside running processes or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from codesdk.artifacts import ArtifactService, GarbageCollector
from codesdk.artifacts.blobs import Blobs
from codesdk.bootstrap.artifact_services import ArtifactServices
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.domain.quotas import Resource
from codesdk.errors import ExitCode, Fault
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.migration import ensure_schema
from codesdk.storage.timeouts import NO_TIMEOUT
from codesdk.storage.writer import Writer
from codesdk.tenancy.quotas import TenantQuotas


class DatabaseMissing(Fault):
    """There is no database where one was named."""

    code = "NO_RECORD"
    exit_code = ExitCode.UNAVAILABLE


@dataclass(frozen=True)
class MaintenanceServices:
    """Rows and bytes of one installation."""

    settings: Settings
    clock: Clock
    ids: Ids
    database: Database
    writer: Writer
    quotas: TenantQuotas
    blobs: Blobs
    artifacts: ArtifactService
    collector: GarbageCollector


@contextmanager
def open_maintenance_services(settings: Settings) -> Iterator[MaintenanceServices]:
    """Open what is there, in this version's schema; closed at the end of the block.

    Raises:
        NoRecord: there is no database.
        StorageUnavailable, SchemaUnknown: it does not answer, or is a newer version's.
    """
    if not settings.database_url and not (settings.data_dir / "codesdk.db").exists():
        advice = "Name another --data-dir, or make one with `codesdk init`."
        raise DatabaseMissing(f"There is no database in {settings.data_dir}.", advice=advice)
    clock = SystemClock()
    ids = RandomIds(clock)
    with ExitStack() as opened:
        # Exports, imports, removals and backups ask for as much as there is, and nobody waits for them but their operator.
        database = Database(settings.resolved_database_url(), NO_TIMEOUT)
        opened.callback(database.close)
        ensure_schema(database, migrate=settings.auto_migrate)
        writer = Writer(database, lock_path(settings, database))
        opened.callback(writer.close)
        quotas = quotas_of(settings)
        artifact_services = ArtifactServices(
            settings, database=database, writer=writer, clock=clock, ids=ids, quotas=quotas
        )
        opened.callback(artifact_services.close)
        yield MaintenanceServices(
            settings=settings,
            clock=clock,
            ids=ids,
            database=database,
            writer=writer,
            quotas=quotas,
            blobs=artifact_services.blobs,
            artifacts=artifact_services.artifacts,
            collector=artifact_services.collector,
        )


def lock_path(settings: Settings, database: Database) -> Path | None:
    """The file that SQLite's writers of all processes lock in turn; a server needs none."""
    return settings.data_dir / "write.lock" if database.is_sqlite else None


def quotas_of(settings: Settings) -> TenantQuotas:
    """The quotas, with the installation's defaults."""
    return TenantQuotas({resource: getattr(settings, f"quota_{resource.value}") for resource in Resource})
