"""Throw-away sandboxes for listing a server's tools: no database row, network or secrets."""

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
"""Below the uids of sessions (200,000 and up), so that per-uid limits aren't shared with their sandboxes."""


class ProbeSandboxes:
    """Sandboxes under their own instance name, so that sweeping them affects no others."""

    def __init__(
        self, sandboxes: Sandboxes, instance: str, images: Mapping[str, str], profiles: Profiles, ids: Ids
    ) -> None:
        """`images`: image name -> image id, on this engine."""
        self._sandboxes = sandboxes
        self._instance = instance
        self._images = images
        self._profiles = profiles
        self._ids = ids

    def open(self, manifest: SourceManifest, serves: SessionId | None, tenant: TenantId) -> ServerSandbox:
        """Open a sandbox for a source's server.

        Raises:
            SourceUnavailable: its image is not on this engine.
            ProfileUnknown, Fault: the sandbox couldn't be created.
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
        """The server's profile without network."""
        return profile_of(manifest, self._profiles).model_copy(update={"egress": DENY_ALL})

    def remove(self, owner: SandboxId) -> None:
        """Remove a sandbox."""
        self._sandboxes.destroy(owner)

    def remove_orphans(self) -> int:
        """Remove all remaining sandboxes; returns their number."""
        swept = self._sandboxes.sweep(())
        return len(swept.containers)
