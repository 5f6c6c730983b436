"""The warm pool: started sandboxes without a session, so that a session's first call doesn't wait for the engine.

Each serves one session and is destroyed after it. Sessions claim rows (`sandbox.records.store`). Every step here is
conditional on the row having no session, so a claim and a removal can't both succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, SandboxId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import PoolRow, SandboxState
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.worker.ownership.registration import OwnedHost

_log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Pause after a sandbox that did not open, before another of its spec is made."""
PoolKey = tuple[str, str]
"""Image and profile, as the rows hold them."""


class PoolSpec(FrozenModel):
    """A profile on an image, and how many to keep."""

    profile: Profile
    image: str
    """Image id."""
    size: int
    """Sandboxes to keep ready."""


def pool_specs(sizes: Mapping[str, int], profiles: Profiles, images: Mapping[str, str]) -> list[PoolSpec]:
    """Pool specs from `sizes` by profile and `images` ids by name. Skips profiles whose image is missing.

    Raises:
        ProfileUnknown: `sizes` names an unknown profile.
    """
    found = []
    for name, size in sizes.items():
        profile = profiles.named(name)
        image = images.get(profile.image)
        if image is None:
            _log.warning("no sandboxes of profile %s wait: its image `%s` is not on the engine", name, profile.image)
        elif size:
            found.append(PoolSpec(profile=profile, image=image, size=size))
    return found


class WarmPool:
    """Keeps each spec's number of sandboxes ready. Call `tend` and `close` from one thread at a time."""

    def __init__(
        self,
        *,
        sandboxes: Sandboxes,
        host: OwnedHost,
        instance: str,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        specs: Sequence[PoolSpec],
    ) -> None:
        self._sandboxes = sandboxes
        self._host = host
        self._instance = instance
        self._database = database
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._sorts = {(spec.image, store.profile_text(spec.profile)): spec for spec in specs}
        self._not_before: dict[PoolKey, float] = {}

    def tend(self) -> None:
        """Remove sandboxes that no longer fit; open at most one that is missing."""
        rows = self._rows()
        for row in rows:
            if row.state is SandboxState.CLOSING or not (self._fits(row) or self._is_throwaway(row)):
                self._remove(row)
        kept = [(row.image, row.profile) for row in rows if row.state is SandboxState.POOLED and self._fits(row)]
        for kind, spec in self._sorts.items():
            if kept.count(kind) < spec.size and self._clock.monotonic() >= self._not_before.get(kind, 0.0):
                self._add(kind, spec)
                return  # one at a time, so that claims in between are seen

    def close(self) -> None:
        """Remove all pooled sandboxes: without a worker they are useless."""
        for row in self._rows():
            self._remove(row)

    def _rows(self) -> list[PoolRow]:
        with self._database.read() as connection:
            found = store.pool(connection, self._host.id)
        return [
            row for row in found if row.generation <= self._host.generation
        ]  # rows of a newer generation belong to a successor

    def _fits(self, row: PoolRow) -> bool:
        """Whether the row is this worker's and of a current spec. One still being created is another worker's."""
        return (
            row.state is SandboxState.POOLED
            and row.generation == self._host.generation
            and (row.image, row.profile) in self._sorts
        )

    def _is_throwaway(self, row: PoolRow) -> bool:
        """A throw-away sandbox of this worker. Those of an earlier worker are left over."""
        return row.state is SandboxState.COPY and row.generation == self._host.generation

    def _add(self, kind: PoolKey, wanted: PoolSpec) -> None:
        sandbox = SandboxId(self._ids.new(IdKind.SANDBOX))
        uid = self._writer.run(
            lambda unit: store.insert(
                unit.connection,
                sandbox,
                None,
                self._host.id,
                image=wanted.image,
                profile=wanted.profile,
                generation=self._host.generation,
            )
        )
        spec = self._host.spec(self._instance, sandbox, image=wanted.image, profile=wanted.profile, uid=uid)
        before, pooled = (SandboxState.WANTED,), SandboxState.POOLED
        try:
            self._sandboxes.open(spec)
        except Fault as fault:
            _log.warning("the pool could not make a sandbox: %s", fault)
            self._not_before[kind] = self._clock.monotonic() + RETRY_S  # the other specs still get theirs
        else:
            self._writer.run(lambda unit: store.change_state(unit.connection, sandbox, before, pooled, unclaimed=True))

    def _remove(self, row: PoolRow) -> None:
        before = (SandboxState.WANTED, SandboxState.POOLED, SandboxState.COPY, SandboxState.CLOSING)
        closing = SandboxState.CLOSING
        if not self._writer.run(
            lambda unit: store.change_state(unit.connection, row.id, before, closing, unclaimed=True)
        ):
            return  # a session has claimed it
        try:
            self._sandboxes.destroy(row.id)
        except Fault as fault:
            _log.warning("pooled sandbox %s could not be removed yet: %s", row.id, fault)
            return
        self._writer.run(lambda unit: store.delete_unowned(unit.connection, row.id))
