"""Sandboxes that a driver has open: one open at a time per owner; a removal wins over a concurrent open."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from codesdk.errors import Fault
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.port import SandboxMissing, SandboxSpec
from codesdk.sandbox.port.faults import SandboxGone, StaleGeneration

_log = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Destroyed owners remembered. The row prevents later opens; this catches one that read it just before."""


class OpenSandboxes:
    """The open sandboxes by owner. Thread-safe."""

    def __init__(self, remove: Callable[[str], object]) -> None:
        """`remove`: removes everything of an owner from the machine; idempotent."""
        self._remove = remove
        self._changed = threading.Condition()
        self._opening: set[str] = set()
        self._destroyed: dict[str, None] = {}
        self._open_by_owner: dict[str, RunnerSandbox] = {}

    def open(
        self,
        spec: SandboxSpec,
        make: Callable[[SandboxSpec], RunnerSandbox],
        undo: Callable[[str], object] | None = None,
    ) -> RunnerSandbox:
        """The open sandbox of that spec, or a new one. After a failure calls `undo` (default: `remove`).

        Raises:
            SandboxGone: it was destroyed, before or meanwhile.
            StaleGeneration: a newer worker owns it; nothing is removed.
        """
        live = self._begin_open(spec.owner)
        try:
            sandbox = live if live is not None and live.matches(spec) else make(spec)
        except StaleGeneration:
            self._finish_open(spec.owner)
            raise  # a newer worker's: not ours to remove
        except BaseException:
            try:
                self._remove_what_failed(spec.owner, undo or self._remove)
            finally:
                self._finish_open(spec.owner)  # else the next open would wait for this one for ever
            raise
        if self._finish_open(spec.owner, sandbox):
            sandbox.end("it was destroyed")
            self._remove(spec.owner)
            raise SandboxGone(spec.owner, "it was destroyed while it was opened")
        return sandbox

    def register(self, sandbox: RunnerSandbox) -> RunnerSandbox | SandboxMissing:
        """Register a reattached sandbox and close the one it replaces. Gone: it was destroyed meanwhile."""
        with self._changed:
            is_destroyed = sandbox.owner in self._destroyed
            older = self._open_by_owner.get(sandbox.owner)
            if not is_destroyed:
                self._open_by_owner[sandbox.owner] = sandbox
        if is_destroyed:
            sandbox.end("it was destroyed")
            return SandboxMissing(owner=sandbox.owner, reason="it was destroyed")
        _close_replaced(older, sandbox)
        return sandbox

    def destroy(self, owner: str) -> None:
        """Remove it permanently. A concurrent open checks before and after its start, so the removal wins."""
        with self._changed:
            self._destroyed[owner] = None
            settled = [each for each in self._destroyed if each not in self._opening]
            for each in settled[: max(0, len(self._destroyed) - REMEMBERED)]:
                del self._destroyed[each]
        self.evict(owner, "it was destroyed")

    def evict(self, owner: str, reason: str, remove: Callable[[str], object] | None = None) -> None:
        """Close and remove an owner's sandbox; pending requests fail with `reason`. `remove`: instead of a full removal."""
        with self._changed:
            live = self._open_by_owner.pop(owner, None)
        if live is not None:
            live.end(reason)
        (remove or self._remove)(owner)

    def sweep(self, owners: Collection[str]) -> set[str]:
        """Remove these owners' sandboxes; returns the removed ones. A failure doesn't stop the others."""
        gone = set()
        for owner in sorted(owners):
            try:
                self.evict(owner, "its owner is gone")
            except Fault as fault:
                # One that cannot be removed now must not keep all that come after it: the next sweep tries again.
                _log.warning("sandbox %s has no living owner and could not be removed yet: %s", owner, fault)
            else:
                _log.info("sandbox %s has no living owner: removed", owner)
                gone.add(owner)
        return gone

    def kept(self, alive: Collection[str] | Callable[[], Collection[str]]) -> set[str]:
        """Owners that a sweep must keep. Call it after listing what exists."""
        with self._changed:
            opening = set(self._opening)
        # In this order: an open that ends in between has its row, so `alive` names it.
        return opening | set(alive() if callable(alive) else alive)

    def close(self) -> None:
        """Close all connections; sandboxes keep running."""
        with self._changed:
            live = list(self._open_by_owner.values())
            self._open_by_owner.clear()
        for sandbox in live:
            sandbox.close()

    def _begin_open(self, owner: str) -> RunnerSandbox | None:
        with self._changed:
            # Two opens of one owner at once: the second returns what the first has opened.
            self._changed.wait_for(lambda: owner not in self._opening)
            if owner in self._destroyed:
                raise SandboxGone(owner, "it was destroyed")
            self._opening.add(owner)
            return self._open_by_owner.get(owner)

    def _finish_open(self, owner: str, sandbox: RunnerSandbox | None = None) -> bool:
        """Register the opened sandbox. True: it was destroyed meanwhile."""
        with self._changed:
            self._opening.discard(owner)
            self._changed.notify_all()
            if owner in self._destroyed:
                return True
            older = self._open_by_owner.get(owner)
            if sandbox is not None:
                self._open_by_owner[owner] = sandbox
        _close_replaced(older, sandbox)
        return False

    def _remove_what_failed(self, owner: str, remove: Callable[[str], object]) -> None:
        try:
            remove(owner)
        except Fault as fault:
            # The caller gets the reason of the failed open; the sweep removes what could not be removed now.
            _log.warning("sandbox %s failed to open and could not be removed yet: %s", owner, fault)


def _close_replaced(older: RunnerSandbox | None, newer: RunnerSandbox | None) -> None:
    if older is not None and newer is not None and older is not newer:
        older.close()
