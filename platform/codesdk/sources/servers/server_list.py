"""The MCP servers of all hosts: published by each worker, listed for operators."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from codesdk.domain.ids import HostId
from codesdk.errors import Fault
from codesdk.hosts import HostUnknown
from codesdk.hosts import store as host_store
from codesdk.sources import store
from codesdk.sources.servers.server_status import ServerRecord, ServerStatus
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal

_log = logging.getLogger(__name__)


class ServerList:
    """Lists the servers of all hosts. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listing(self, caller: Principal) -> list[ServerRecord]:
        """All servers, by host, source and session.

        Raises:
            Forbidden: see `decide_access`.
        """
        # Servers name sessions of every tenant, so this takes instance-wide access.
        target = Target(tenant_id=caller.tenant_id)
        require(decide_access(caller, Action.HOSTS_READ, target), HostUnknown("There is no such host."))
        with self._database.read() as connection:
            return store.list_servers(connection)


class ServerReporter:
    """Publishes the servers of one worker. For one thread at a time."""

    def __init__(self, writer: Writer, host: HostId, generation: int) -> None:
        """`generation`: this worker's; its reports count only while it owns the host."""
        self._writer = writer
        self._host = host
        self._generation = generation
        self._reported: tuple[ServerStatus, ...] | None = None

    def tell(self, servers: Sequence[ServerStatus]) -> None:
        """Publish the complete list, if it changed. A failed write is retried at the next call."""
        found = tuple(servers)
        if found == self._reported:
            return

        def write(unit: Unit) -> None:
            if host_store.is_current(unit.connection, self._host, self._generation):
                store.replace_servers(unit.connection, self._host, self._generation, found)

        try:
            self._writer.run(write)
        except Fault as fault:
            _log.warning("could not publish the status of MCP servers: %s", fault)
        else:
            self._reported = found
