"""Throw-away sandboxes: opened for one dry run, without network, and always removed after it.

As for every sandbox, the row is written before the engine is called. If the worker dies, the next worker's pool removes
the row, which has an earlier generation (`warm_pool`).
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
    """The call ended before its dry run started."""


class ThrowawaySandboxes:
    """Opens and removes them. Thread-safe."""

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
        """Open an empty sandbox for the block, from the pool if possible. `begins` runs in the unit that writes its row; False rolls it back.

        Raises:
            DryRunCancelled: `begins` returned False.
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
            # The pooled sandbox has ended meanwhile. It was unused.
            _log.info("throw-away sandbox %s is replaced: %s", spec.owner, fault)
            return self._sandboxes.open(spec)

    def tend(self) -> None:
        """Retry failed removals."""
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
        """Claim an unused sandbox from the pool, or insert a row for a new one."""
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
            _log.warning("throw-away sandbox %s could not be removed yet: %s", sandbox, fault)
            with self._lock:
                self._left.add(sandbox)
