"""Checks of the installation's database: hosts, running MCP servers, tenants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from codesdk.errors import Fault
from codesdk.hosts import HostRecord, HostState
from codesdk.hosts import store as host_store
from codesdk.provision.checks.check import Check, Status
from codesdk.settings import Settings
from codesdk.sources import store as source_store
from codesdk.sources.servers.server_status import ServerRecord, ServerState
from codesdk.storage.database import Database
from codesdk.storage.migration import SchemaBehind, require_current_schema
from codesdk.tenancy import store as tenancy_store

SQLITE = "sqlite:///"
MAX_LISTED = 8
"""Hosts or servers that are named; `codesdk hosts list` and `codesdk hosts servers` show all."""


class InstallationFacts(NamedTuple):
    """What the database contains."""

    hosts: tuple[HostRecord, ...]
    servers: tuple[ServerRecord, ...]
    tenants: frozenset[str]
    """Tenant names."""


def read_installation(settings: Settings) -> InstallationFacts | Check | None:
    """Read the database. Returns a check if the schema is another version's, None if there is no readable database."""
    url = settings.resolved_database_url()
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        return None
    try:
        with closing(Database(url)) as database:
            require_current_schema(database)
            with database.read() as connection:
                return InstallationFacts(
                    hosts=tuple(host_store.with_calls(connection, host_store.list_hosts(connection))),
                    servers=tuple(source_store.list_servers(connection)),
                    tenants=frozenset(tenant.name for tenant in tenancy_store.all_tenants(connection)),
                )
    except SchemaBehind as fault:
        if settings.auto_migrate:
            return Check("schema", Status.INFO, f"{fault.message} The next start migrates it.")
        return Check("schema", Status.FAIL, fault.message, fault.advice())
    except Fault:
        return None  # the database check reports it


def check_installation(seen: InstallationFacts, settings: Settings) -> Iterator[Check]:
    """Check hosts and running MCP servers."""
    yield _hosts(seen.hosts, settings)
    yield _servers(seen.servers)


def _hosts(found: Sequence[HostRecord], settings: Settings) -> Check:
    listed = _listed([_host(host, settings.host_name) for host in found])
    if not found:
        return Check("hosts", Status.INFO, f"none yet: no worker has ever run (this host is `{settings.host_name}`)")
    if lost := [host.name for host in found if host.state is HostState.LOST]:
        fix = f"Start the worker of {lost[0]} again; its sessions have ended (docs/how-to/run-several-hosts.md)"
        return Check("hosts", Status.WARN, listed, fix)
    lease_s = settings.host_lease_s
    if silent := [host for host in found if lease_s and not host.away and (host.silent_s or 0) > lease_s]:
        return Check("hosts", Status.WARN, listed, f"Check the worker of {silent[0].name}: it sends no heartbeats")
    return Check("hosts", Status.OK, listed)


def _host(host: HostRecord, own: str) -> str:
    this = " (this host)" if host.name == own else ""
    state = f"{host.state.value}, its worker stopped" if host.away else host.state.value
    heartbeat = "no heartbeat yet" if host.silent_s is None else f"heartbeat {host.silent_s:.0f} s ago"
    engine = f", engine {host.engine[:12]}" if host.engine else ""
    calls = f"{host.running_calls} calls run, {host.queued_calls} wait"
    return f"{host.name}{this}: {state}, {heartbeat}{engine}, sessions {host.sessions}, {calls}"


def _servers(found: Sequence[ServerRecord]) -> Check:
    name = "MCP servers running"
    if not found:
        return Check(name, Status.INFO, "none: they start with the first call of one of their tools")
    listed = _listed([_server(server) for server in found])
    if ended := [server for server in found if server.state is ServerState.ENDED]:
        return Check(name, Status.WARN, listed, f"See why {ended[0].source} ended: codesdk hosts servers")
    return Check(name, Status.OK, listed)


def _server(server: ServerRecord) -> str:
    since = ""
    if server.since is not None:
        since = datetime.fromtimestamp(server.since, UTC).strftime(" since %Y-%m-%d %H:%M:%SZ")
    whose = f"for {server.session_id}" if server.session_id else "shared"
    return f"{server.source} on {server.host} {whose}: {server.state.value}{since}, {server.restarts} restarts"


def _listed(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return "; ".join([*lines[:MAX_LISTED], *more])
