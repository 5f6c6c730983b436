"""Stdio MCP servers, each in its own sandbox."""

from __future__ import annotations

from functools import partial

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, SessionId, TenantId
from codesdk.registry import Source
from codesdk.sandbox.port import ExecRequest
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sources.servers.server import StartedServer
from codesdk.sources.starters.server_sandboxes import SandboxProvider, ServerSandbox
from codesdk.sources.transport.channel import ExecChannel
from codesdk.sources.transport.message_streams import open_streams

GIT_TRUST_ENV = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "safe.directory", "GIT_CONFIG_VALUE_1": "*"}
"""Lets git read the session's repositories, which belong to another uid."""
MAX_LIFETIME_S = 24 * 3600.0
"""Maximum lifetime of a server process, unless its profile's is shorter; the next call starts a new one."""


class StdioStarter:
    """A `Starter`. Safe to use from the worker's threads."""

    def __init__(self, sandboxes: SandboxProvider, clock: Clock, ids: Ids) -> None:
        self._sandboxes = sandboxes
        self._clock = clock
        self._ids = ids

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> StartedServer:
        """Start a server in a new sandbox.

        Raises:
            SourceUnavailable: its image is not on this host.
            Fault: its sandbox couldn't be created; nothing is left behind.
        """
        server_sandbox = self._sandboxes.open(source.manifest, serves, tenant)
        request = ExecRequest(
            call=self._ids.new(IdKind.CALL),
            argv=source.manifest.argv,
            env={**(GIT_TRUST_ENV if source.manifest.workspace == "read" else {}), **source.manifest.env},
            egress=server_sandbox.profile.egress,
            timeout_s=min(MAX_LIFETIME_S, server_sandbox.profile.lifetime_s or MAX_LIFETIME_S),
        )
        try:
            channel = ExecChannel(server_sandbox.sandbox, request)
        except BaseException:
            self._release(server_sandbox)
            raise
        return StartedServer(
            partial(open_streams, channel, self._clock.monotonic), partial(self._release, server_sandbox)
        )

    def profile_of(self, source: Source) -> Profile:
        """The profile of its sandbox."""
        return self._sandboxes.profile_of(source.manifest)

    def remove_orphans(self) -> None:
        """Remove sandboxes that no server of this worker uses."""
        self._sandboxes.remove_orphans()

    def _release(self, server_sandbox: ServerSandbox) -> None:
        server_sandbox.sandbox.close()
        self._sandboxes.remove(server_sandbox.id)
