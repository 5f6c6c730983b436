"""Just enough of one process to administer tenants: no policy, no registry, no Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from codesdk.bootstrap.maintenance import lock_path, quotas_of
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.hosts import HostService
from codesdk.settings import Settings
from codesdk.sources.servers.server_list import ServerList
from codesdk.storage.database import Database
from codesdk.storage.migration import ensure_schema
from codesdk.storage.writer import Writer
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.first_operator import OperatorSetup
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.quotas import TenantQuotas


@dataclass(frozen=True)
class AdminServices:
    """Who is who, what they may have, and where it runs."""

    directory: IdentityDirectory
    quotas: TenantQuotas
    administration: Administration
    founding: OperatorSetup
    hosts: HostService
    servers: ServerList


def wire_admin_services(
    settings: Settings, database: Database, writer: Writer, clock: Clock, ids: Ids
) -> AdminServices:
    """The part of the wiring that both a whole process and a command on the data directory need."""
    quotas = quotas_of(settings)
    directory = IdentityDirectory(database, clock, ids, quotas=quotas, writer=writer, yolo=settings.allow_yolo)
    administration = Administration(
        database=database, writer=writer, directory=directory, quotas=quotas, clock=clock, ids=ids
    )
    founding = OperatorSetup(directory, quotas, clock, ids)
    return AdminServices(
        directory=directory,
        quotas=quotas,
        administration=administration,
        founding=founding,
        hosts=HostService(database, writer, clock),
        servers=ServerList(database),
    )


@contextmanager
def open_admin_services(settings: Settings) -> Iterator[tuple[AdminServices, Writer]]:
    """Work on the data directory itself; the database is brought to this version.

    Raises:
        DataDirUnusable, StorageUnavailable, SchemaUnknown: with what to do.
    """
    settings.prepare_data_dir()
    clock = SystemClock()
    database = Database(settings.resolved_database_url(), settings.database_answer_s)
    try:
        ensure_schema(database, migrate=settings.auto_migrate)
        writer = Writer(database, lock_path(settings, database))
        try:
            yield wire_admin_services(settings, database, writer, clock, RandomIds(clock)), writer
        finally:
            writer.close()
    finally:
        database.close()
