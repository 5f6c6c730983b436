"""Chooses the starter of a source: sandbox or remote."""

from __future__ import annotations

from codesdk.domain.ids import SessionId, TenantId
from codesdk.registry import Source
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sources.servers.server import StartedServer
from codesdk.sources.starters.remote import RemoteStarter
from codesdk.sources.starters.stdio import StdioStarter


class StarterRouter:
    """A `Starter`. Safe to use from the worker's threads."""

    def __init__(self, local: StdioStarter, remote: RemoteStarter) -> None:
        self._local = local
        self._remote = remote

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> StartedServer:
        """Start a server of the source.

        Raises:
            SourceUnavailable, Fault: the server couldn't be started.
        """
        starter = self._local if source.manifest.url is None else self._remote
        return starter.begin(source, serves, tenant)

    def profile_of(self, source: Source) -> Profile | None:
        """The profile of its sandbox; None for a remote server."""
        return self._local.profile_of(source) if source.manifest.url is None else None

    def remove_orphans(self) -> None:
        """Remove sandboxes that no server of this worker uses."""
        self._local.remove_orphans()
