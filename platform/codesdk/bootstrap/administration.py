"""Just enough of one process to administer tenants: no policy, no registry, no Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from codesdk.bootstrap.record import lock_path, quotas_of
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.hosts import Hosts
from codesdk.settings import Settings
from codesdk.sources.roster import Roster
from codesdk.storage.database import Database
from codesdk.storage.migration import bring_up
from codesdk.storage.writer import Writer
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.directory import Directory
from codesdk.tenancy.founding import Founding
from codesdk.tenancy.quotas import TenantQuotas


@dataclass(frozen=True)
class Tenancy:
    """Who is who, what they may have, and where it runs."""

    directory: Directory
    quotas: TenantQuotas
    administration: Administration
    founding: Founding
    hosts: Hosts
    servers: Roster


def wire_tenancy(settings: Settings, database: Database, writer: Writer, clock: Clock, ids: Ids) -> Tenancy:
    """The part of the wiring that both a whole process and a command on the data directory need."""
    quotas = quotas_of(settings)
    directory = Directory(database, clock, ids, quotas=quotas, writer=writer, yolo=settings.allow_yolo)
    administration = Administration(
        database=database, writer=writer, directory=directory, quotas=quotas, clock=clock, ids=ids
    )
    founding = Founding(directory, quotas, clock, ids)
    return Tenancy(
        directory=directory,
        quotas=quotas,
        administration=administration,
        founding=founding,
        hosts=Hosts(database, writer, clock),
        servers=Roster(database),
    )


@contextmanager
def open_tenancy(settings: Settings) -> Iterator[tuple[Tenancy, Writer]]:
    """Work on the data directory itself; the database is brought to this version.

    Raises:
        DataDirUnusable, StorageUnavailable, SchemaUnknown: with what to do.
    """
    settings.prepare_data_dir()
    clock = SystemClock()
    database = Database(settings.resolved_database_url(), settings.database_answer_s)
    try:
        bring_up(database, migrate=settings.auto_migrate)
        writer = Writer(database, lock_path(settings, database))
        try:
            yield wire_tenancy(settings, database, writer, clock, RandomIds(clock)), writer
        finally:
            writer.close()
    finally:
        database.close()
