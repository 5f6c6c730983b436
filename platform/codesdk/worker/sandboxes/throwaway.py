"""Throw-away sandboxes: opened for one trial, without network, and removed whatever comes of it.

The row is written before the engine is asked, as for every sandbox. Whose worker died with one is of an earlier
generation: the pool of the next worker removes it (`worker.pool`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from codesdk.domain.ids import IdKind, Ids, SandboxId
from codesdk.errors import Fault
from codesdk.sandbox.port import Sandbox, Sandboxes, SandboxSpec
from codesdk.sandbox.port.faults import IsolationDrift, SandboxGone
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.ownership.registration import OwnedHost

_log = logging.getLogger(__name__)


class DryRunCancelled(Exception):
    """What was to be tried ended before the copy was made."""


class ThrowawaySandboxes:
    """Makes and removes them. Safe to use from the worker's threads."""

    def __init__(self, *, sandboxes: Sandboxes, host: OwnedHost, instance: str, writer: Writer, ids: Ids) -> None:
        self._sandboxes = sandboxes
        self._host = host
        self._instance = instance
        self._writer = writer
        self._ids = ids
        self._lock = threading.Lock()
        self._left: set[SandboxId] = set()
        """Those whose removal failed."""

    @contextmanager
    def open(self, image: str, profile: Profile, begins: Callable[[Unit, SandboxId], bool]) -> Iterator[Sandbox]:
        """An empty sandbox for the block, warm where the pool has such a one. `begins` is called in the unit that makes its row; False undoes that.

        Raises:
            NotWanted: `begins` said so.
            Fault: the engine could not open it.
        """
        sandbox, uid = self._writer.run(lambda unit: self._claim_or_insert(unit, image, profile, begins))
        spec = self._host.spec(self._instance, sandbox, image=image, profile=profile, uid=uid)
        try:
            opened = self._open_with_retry(spec)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            self._remove(sandbox)

    def _open_with_retry(self, spec: SandboxSpec) -> Sandbox:
        try:
            return self._sandboxes.open(spec)
        except (SandboxGone, IsolationDrift) as fault:
            # One of the pool may have ended since it was started; nothing of anybody's was in it.
            _log.info("the copy %s is made anew: %s", spec.owner, fault)
            return self._sandboxes.open(spec)

    def tend(self) -> None:
        """Remove what could not be removed before."""
        with self._lock:
            left, self._left = self._left, set()
        for sandbox in left:
            self._remove(sandbox)

    def _claim_or_insert(
        self,
        unit: Unit,
        image: str,
        profile: Profile,
        begins: Callable[[Unit, SandboxId], bool],
    ) -> tuple[SandboxId, int]:
        """One of the pool where there is such a one: it was started, and nobody has used it."""
        claimed = store.claim_for_preview(unit.connection, self._host.id, image=image, profile=profile)
        if claimed is None:
            sandbox = SandboxId(self._ids.new(IdKind.SANDBOX))
            uid = store.insert(
                unit.connection,
                sandbox,
                None,
                self._host.id,
                image=image,
                profile=profile,
                generation=self._host.generation,
                state=SandboxState.COPY,
            )
            claimed = sandbox, uid
        if not begins(unit, claimed[0]):
            raise DryRunCancelled
        return claimed

    def _remove(self, sandbox: SandboxId) -> None:
        before, after = (SandboxState.COPY, SandboxState.CLOSING), SandboxState.CLOSING
        try:
            self._writer.run(lambda unit: store.change_state(unit.connection, sandbox, before, after, unclaimed=True))
            self._sandboxes.destroy(sandbox)
            self._writer.run(lambda unit: store.delete_unowned(unit.connection, sandbox))
        except Fault as fault:
            _log.warning("the copy %s could not be removed yet: %s", sandbox, fault)
            with self._lock:
                self._left.add(sandbox)
