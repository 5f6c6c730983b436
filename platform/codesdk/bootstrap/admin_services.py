"""The services that administer tenants and hosts; they need the database only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


class AdminServices:
    """Tenants, principals, quotas and hosts."""

    def __init__(self, settings: Settings, database: Database, writer: Writer, clock: Clock, ids: Ids) -> None:
        self.quotas = quotas_of(settings)
        self.directory = IdentityDirectory(
            database, clock, ids, quotas=self.quotas, writer=writer, yolo=settings.allow_yolo
        )
        self.administration = Administration(
            database=database, writer=writer, directory=self.directory, quotas=self.quotas, clock=clock, ids=ids
        )
        self.operator_setup = OperatorSetup(self.directory, self.quotas, clock, ids)
        self.hosts = HostService(database, writer, clock)
        self.mcp_servers = ServerList(database)


@contextmanager
def open_admin_services(settings: Settings) -> Iterator[tuple[AdminServices, Writer]]:
    """Open the database of the data directory, migrated to this version's schema.

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
            yield AdminServices(settings, database, writer, clock, RandomIds(clock)), writer
        finally:
            writer.close()
    finally:
        database.close()
