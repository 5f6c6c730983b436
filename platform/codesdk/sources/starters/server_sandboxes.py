"""Sandboxes for servers: the owner row before the engine is called, and no sandbox without one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from codesdk.domain.clock import Clock
from codesdk.domain.decisions import Obligations
from codesdk.domain.ids import HostId, IdKind, Ids, SandboxId, SessionId, TenantId
from codesdk.domain.quotas import Quotas
from codesdk.domain.sandbox_resources import reserve_sandbox
from codesdk.errors import Fault
from codesdk.registry import SourceManifest
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules
from codesdk.sandbox.port import Sandbox, Sandboxes, SandboxSpec, SharedWorkspace
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile, Seccomp
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sources.faults import SourceUnavailable
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

_log = logging.getLogger(__name__)
SERVER_WORKSPACE = "/srv"
"""Where a server has its own workspace that sees the session's at that one's place."""
_WORKSPACE_STATES = (
    SandboxState.READY,
    SandboxState.PAUSED,
    SandboxState.STOPPING,
    SandboxState.HALTING,
    SandboxState.STOPPED,
)
"""Of a session's sandbox, while there is a workspace."""
_LIVE_STATES = (SandboxState.WANTED, SandboxState.READY, SandboxState.CLOSING)


class ServerSandbox(NamedTuple):
    """A server's sandbox."""

    id: SandboxId
    sandbox: Sandbox
    profile: Profile


class EngineHost(NamedTuple):
    """The engine that sandboxes are made on."""

    host: HostId
    generation: int
    instance: str
    images: Mapping[str, str]
    """Image name -> image id."""


def profile_of(manifest: SourceManifest, profiles: Profiles) -> Profile:
    """What a source's sandbox may use: its profile, held to its limits, with its own secrets and no others.

    Raises:
        ProfileUnknown: with the nearest name.
    """
    profile = profiles.named(manifest.profile).tighten(Obligations(sandbox=manifest.limits))
    if manifest.workspace == "read":
        # What it reads must not leave; and a repository there can have programs run, which then have nothing either.
        return profile.model_copy(
            update={"egress": DENY_ALL, "workspace": SERVER_WORKSPACE, "seccomp": Seccomp.CODESDK}
        )
    egress = DENY_ALL if manifest.shared else _with_secrets(profile.egress, manifest.secrets)
    return profile.model_copy(update={"egress": egress})


def _with_secrets(rules: EgressRules, names: tuple[str, ...]) -> EgressRules:
    kept = (
        rule.model_copy(update={"inject": tuple(item for item in rule.inject if item.secret in names)})
        for rule in rules.rules
    )
    return rules.model_copy(update={"rules": tuple(kept)})


class SandboxProvider(Protocol):
    """Where servers get their sandboxes from."""

    def open(self, manifest: SourceManifest, serves: SessionId | None, tenant: TenantId) -> ServerSandbox:
        """A fresh sandbox for that source's server; what cannot be made leaves nothing behind."""
        ...

    def profile_of(self, manifest: SourceManifest) -> Profile:
        """What it may use."""
        ...

    def remove(self, owner: SandboxId) -> None:
        """Remove one."""
        ...

    def remove_orphans(self) -> int:
        """Remove those that no server has; how many there were."""
        ...


class ServerSandboxes:
    """Opens and removes them. Safe to use from the worker's threads."""

    def __init__(
        self,
        *,
        sandboxes: Sandboxes,
        place: EngineHost,
        profiles: Profiles,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        quotas: Quotas[Unit],
    ) -> None:
        self._sandboxes = sandboxes
        self._place = place
        self._profiles = profiles
        self._database = database
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._quotas = quotas
        self._lock = threading.Lock()
        self._in_use: set[SandboxId] = set()

    def open(self, manifest: SourceManifest, serves: SessionId | None, tenant: TenantId) -> ServerSandbox:
        """A fresh sandbox for that source's server. `serves`: the one session that it is for.

        Raises:
            SourceUnavailable: the image, or the session's workspace, is not on this host.
            ProfileUnknown, QuotaExceeded, Fault: what kept it from being made; nothing is left of it.
        """
        profile = profile_of(manifest, self._profiles)
        name = manifest.image or profile.image
        image = self._place.images.get(name)
        if image is None:
            advice = "Build it, or name it in images.yaml (docs/how-to/use-your-own-image.md), and restart the worker."
            raise SourceUnavailable(manifest.name, f"needs the image `{name}`, which is not on this host", advice)
        borrows = self._borrowed_workspace(manifest, serves) if manifest.workspace == "read" else None
        owner = SandboxId(self._ids.new(IdKind.SANDBOX))
        with self._lock:
            self._in_use.add(owner)
        try:
            uid = self._writer.run(
                lambda unit: self._insert_row(
                    unit, owner, manifest, image=image, profile=profile, serves=serves, tenant=tenant
                )
            )
            spec = SandboxSpec(
                owner=owner,
                instance=self._place.instance,
                profile=profile,
                image=image,
                tool_uid=uid,
                generation=self._place.generation,
                borrows=borrows,
            )
            sandbox = self._sandboxes.open(spec)
        except BaseException:
            self.remove(owner)
            raise
        return ServerSandbox(owner, sandbox, profile)

    def _borrowed_workspace(self, manifest: SourceManifest, serves: SessionId | None) -> SharedWorkspace:
        with self._database.read() as connection:
            row = store.of_session(connection, serves) if serves is not None else None
        if row is None or row.host_id != self._place.host or row.state not in _WORKSPACE_STATES:
            raise SourceUnavailable(manifest.name, "sees the session's workspace, which is not there now")
        place = Profile.model_validate_json(row.profile).workspace
        if place == SERVER_WORKSPACE:
            raise SourceUnavailable(manifest.name, f"cannot see a workspace that is at {place}, where its own is")
        return SharedWorkspace(owner=row.id, place=place)

    def profile_of(self, manifest: SourceManifest) -> Profile:
        """What a source's sandbox may use."""
        return profile_of(manifest, self._profiles)

    def remove(self, owner: SandboxId) -> None:
        """Remove a sandbox and its row; where the engine does not now, `remove_orphans` tries again."""
        try:
            self._remove(owner)
        except Fault as fault:
            _log.warning("sandbox %s of an MCP server could not be removed yet: %s", owner, fault)
        finally:
            with self._lock:
                self._in_use.discard(owner)

    def remove_orphans(self) -> int:
        """Remove what no server of this worker has: of workers that were killed, and what could not be removed before."""
        with self._database.read() as connection:
            known = store.of_sources(connection, self._place.host)
        with self._lock:
            orphans = [owner for owner in known if owner not in self._in_use]
        for owner in orphans:
            self.remove(owner)
        return len(orphans)

    def _insert_row(
        self,
        unit: Unit,
        owner: SandboxId,
        manifest: SourceManifest,
        *,
        image: str,
        profile: Profile,
        serves: SessionId | None,
        tenant: TenantId,
    ) -> int:
        if serves is not None:  # a shared one is the installation's
            reserve_sandbox(self._quotas, unit, tenant, profile.model_dump())
        return store.insert(
            unit.connection,
            owner,
            None,
            self._place.host,
            image=image,
            profile=profile,
            generation=self._place.generation,
            source=manifest.name,
            serves=serves,
        )

    def _remove(self, owner: SandboxId) -> None:
        closing = SandboxState.CLOSING
        if not self._writer.run(
            lambda unit: store.change_state(unit.connection, owner, _LIVE_STATES, closing, unclaimed=True)
        ):
            return  # its row was never written, or is gone
        self._sandboxes.destroy(owner)
        self._writer.run(lambda unit: store.delete_unowned(unit.connection, owner))
