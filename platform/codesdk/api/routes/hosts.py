"""Hosts over HTTP, for operators of the installation."""

from __future__ import annotations

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.model import FrozenModel
from codesdk.hosts import HostRecord
from codesdk.sources.servers.server_status import ServerRecord

router = guarded_router()


class HostList(FrozenModel):
    """Hosts, by name."""

    hosts: list[HostRecord]


class ServerList(FrozenModel):
    """MCP servers, by host, source and session."""

    servers: list[ServerRecord]


@router.get("/v1/hosts")
def list_hosts(caller: Caller, services: ServicesDep) -> HostList:
    """List all hosts, with their capacity and reservations."""
    return HostList(hosts=services.hosts.listing(caller))


@router.get("/v1/hosts/{host_id}")
def read_host(host_id: str, caller: Caller, services: ServicesDep) -> HostRecord:
    """Return a host, by id or name."""
    return services.hosts.find(caller, host_id)


@router.post("/v1/hosts/{host_id}/drain")
def drain_host(host_id: str, caller: Caller, services: ServicesDep) -> HostRecord:
    """Drain a host: place no new sessions on it. Existing sessions continue."""
    return services.hosts.drain(caller, host_id)


@router.post("/v1/hosts/{host_id}/activate")
def activate_host(host_id: str, caller: Caller, services: ServicesDep) -> HostRecord:
    """Activate a host: place sessions on it again."""
    return services.hosts.activate(caller, host_id)


@router.post("/v1/hosts/{host_id}/lose")
def lose_host(host_id: str, caller: Caller, services: ServicesDep) -> HostRecord:
    """Declare a host lost. Its sessions are closed within seconds."""
    return services.hosts.lose(caller, host_id)


@router.get("/v1/mcp-servers")
def list_servers(caller: Caller, services: ServicesDep) -> ServerList:
    """List the MCP servers that workers run for their sessions, as last reported some seconds ago."""
    return ServerList(servers=services.mcp_servers.listing(caller))
