"""Sandboxes of MCP servers. Their database row is written before the engine is called, so that none is leaked."""

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
"""Path of the server's own workspace if it also mounts the session's."""
_WORKSPACE_STATES = (
    SandboxState.READY,
    SandboxState.PAUSED,
    SandboxState.STOPPING,
    SandboxState.HALTING,
    SandboxState.STOPPED,
)
"""States of a session's sandbox in which its workspace exists."""
_LIVE_STATES = (SandboxState.WANTED, SandboxState.READY, SandboxState.CLOSING)


class ServerSandbox(NamedTuple):
    """A server's sandbox."""

    id: SandboxId
    sandbox: Sandbox
    profile: Profile


class EngineHost(NamedTuple):
    """The engine that creates the sandboxes."""

    host: HostId
    generation: int
    instance: str
    images: Mapping[str, str]
    """Image name -> image id."""


def profile_of(manifest: SourceManifest, profiles: Profiles) -> Profile:
    """The profile of a source's sandbox, tightened to the manifest's limits and restricted to its secrets.

    Raises:
        ProfileUnknown: with the nearest name.
    """
    profile = profiles.named(manifest.profile).tighten(Obligations(sandbox=manifest.limits))
    if manifest.workspace == "read":
        # No egress: what it reads must not leave, and a hostile repository may run programs in it.
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
    """Opens and removes sandboxes for servers."""

    def open(self, manifest: SourceManifest, serves: SessionId | None, tenant: TenantId) -> ServerSandbox:
        """Open a new sandbox for a source's server; a failure leaves nothing behind."""
        ...

    def profile_of(self, manifest: SourceManifest) -> Profile:
        """The profile of its sandbox."""
        ...

    def remove(self, owner: SandboxId) -> None:
        """Remove a sandbox."""
        ...

    def remove_orphans(self) -> int:
        """Remove sandboxes without a server; returns their number."""
        ...


class ServerSandboxes:
    """The worker's `SandboxProvider`. Safe to use from the worker's threads."""

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
        """Open a new sandbox for a source's server. `serves`: the session it is for; None if shared.

        Raises:
            SourceUnavailable: the image, or the session's workspace, is not on this host.
            ProfileUnknown, QuotaExceeded, Fault: the sandbox couldn't be created; nothing is left behind.
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
        """The profile of a source's sandbox."""
        return profile_of(manifest, self._profiles)

    def remove(self, owner: SandboxId) -> None:
        """Remove a sandbox and its row. If the engine fails, `remove_orphans` retries."""
        try:
            self._remove(owner)
        except Fault as fault:
            _log.warning("could not remove sandbox %s of an MCP server yet: %s", owner, fault)
        finally:
            with self._lock:
                self._in_use.discard(owner)

    def remove_orphans(self) -> int:
        """Remove sandboxes that no server uses: those of killed workers, and failed removals."""
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
        if serves is not None:  # a shared server counts against no tenant
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
