"""A server that is only asked what it offers: in a sandbox without rows, network and secrets, which is removed at once."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from codesdk.domain.ids import IdKind, Ids, SandboxId, SessionId, TenantId
from codesdk.registry import SourceManifest
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.port import Sandboxes, SandboxSpec
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sources.faults import SourceUnavailable
from codesdk.sources.starters.server_sandboxes import ServerSandbox, profile_of

FIRST_UID, UIDS = 100_000, 99_000
"""Below those of sessions (200,000 and up), so that nothing here shares a limit with a sandbox that works."""


class ProbeSandboxes:
    """Sandboxes of an installation of their own, which its owner sweeps."""

    def __init__(
        self, sandboxes: Sandboxes, instance: str, images: Mapping[str, str], profiles: Profiles, ids: Ids
    ) -> None:
        """`images`: name -> id, on the engine that these are made on."""
        self._sandboxes = sandboxes
        self._instance = instance
        self._images = images
        self._profiles = profiles
        self._ids = ids

    def open(self, manifest: SourceManifest, serves: SessionId | None, tenant: TenantId) -> ServerSandbox:
        """A sandbox for that source's server.

        Raises:
            SourceUnavailable: its image is not here.
            ProfileUnknown, Fault: what kept it from being made.
        """
        del serves, tenant
        profile = self.profile_of(manifest)
        image = self._images.get(manifest.image or profile.image)
        if image is None:
            raise SourceUnavailable(manifest.name, f"needs the image `{manifest.image or profile.image}`")
        owner = SandboxId(self._ids.new(IdKind.SANDBOX))
        spec = SandboxSpec(
            owner=owner,
            instance=self._instance,
            profile=profile,
            image=image,
            tool_uid=FIRST_UID + secrets.randbelow(UIDS),
            generation=1,
        )
        try:
            return ServerSandbox(owner, self._sandboxes.open(spec), profile)
        except BaseException:
            self._sandboxes.destroy(owner)
            raise

    def profile_of(self, manifest: SourceManifest) -> Profile:
        """What its sandbox may use: no network, whatever its profile allows when it works."""
        return profile_of(manifest, self._profiles).model_copy(update={"egress": DENY_ALL})

    def remove(self, owner: SandboxId) -> None:
        """Remove it."""
        self._sandboxes.destroy(owner)

    def remove_orphans(self) -> int:
        """Remove what is left."""
        swept = self._sandboxes.sweep(())
        return len(swept.containers)
