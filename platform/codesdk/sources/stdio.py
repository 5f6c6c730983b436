"""Servers that speak on standard input and output, each in a sandbox of its own."""

from __future__ import annotations

from functools import partial

from codesdk.domain.clock import Clock
from codesdk.domain.ids import Ids, Kind, SessionId, TenantId
from codesdk.registry import Source
from codesdk.sandbox.port import ExecRequest
from codesdk.sandbox.profile import Profile
from codesdk.sources.channel import SandboxChannel
from codesdk.sources.housing import House, Houses
from codesdk.sources.server import Begun
from codesdk.sources.wire import spoken

GIT_OF_OTHERS = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "safe.directory", "GIT_CONFIG_VALUE_1": "*"}
"""To what every command starts with: git reads no repository of another uid otherwise, and a session's files are one's."""
LIFE_S = 24 * 3600.0
"""Wall time of one server, where its profile gives it no shorter one: then the next call starts another."""


class StdioStarter:
    """A `Starter`. Safe to use from the worker's threads."""

    def __init__(self, housing: Houses, clock: Clock, ids: Ids) -> None:
        self._housing = housing
        self._clock = clock
        self._ids = ids

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> Begun:
        """Start one.

        Raises:
            SourceUnavailable: its image is not here.
            Fault: what kept its sandbox from being made; nothing is left of it.
        """
        house = self._housing.open(source.manifest, serves, tenant)
        request = ExecRequest(
            call=self._ids.new(Kind.CALL),
            argv=source.manifest.argv,
            env={**(GIT_OF_OTHERS if source.manifest.workspace == "read" else {}), **source.manifest.env},
            egress=house.profile.egress,
            timeout_s=min(LIFE_S, house.profile.lifetime_s or LIFE_S),
        )
        try:
            channel = SandboxChannel(house.sandbox, request)
        except BaseException:
            self._release(house)
            raise
        return Begun(partial(spoken, channel, self._clock.monotonic), partial(self._release, house))

    def profile_of(self, source: Source) -> Profile:
        """What its sandbox may use."""
        return self._housing.profile_of(source.manifest)

    def tidy(self) -> None:
        """Remove the sandboxes that no server of this worker has."""
        self._housing.tidy()

    def _release(self, house: House) -> None:
        house.sandbox.close()
        self._housing.remove(house.id)
