"""The worker's heartbeat: renews the host's lease, and learns when the host belongs to another worker.

Observers measure silence on their own clocks (`hosts.lease_watch`). The worker is stricter: after half a lease without a
heartbeat it sends one before it starts anything (`confirm`). So a worker that was frozen starts nothing on a host that
was declared lost meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from codesdk.domain.clock import Clock
from codesdk.errors import ExitCode, Fault
from codesdk.hosts import store
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.run.error_mapping import CallReleased
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.ownership.takeover import SILENT_S

_log = logging.getLogger(__name__)

BEATS_PER_LEASE = 6
"""Heartbeats per lease, so that some may be late or lost."""
DEFAULT_INTERVAL_S = 5.0
"""Seconds between heartbeats without a lease."""


class HostGone(CallReleased):
    """The host belongs to a newer worker, or was declared lost."""

    code = "HOST_GONE"
    retryable = True
    exit_code = ExitCode.UNAVAILABLE


class Heartbeat:
    """Sends heartbeats from `start` to `stop` on its own thread. Thread-safe."""

    def __init__(self, writer: Writer, clock: Clock, host: OwnedHost, lease_s: float) -> None:
        """`lease_s`: seconds of silence after which others declare the host lost; 0: never."""
        self._writer = writer
        self._clock = clock
        self._host = host
        self._every_s = lease_s / BEATS_PER_LEASE if lease_s else DEFAULT_INTERVAL_S
        self.turns = 0
        """Heartbeats attempted and answered."""
        self._confirm_after_s = (lease_s or SILENT_S) / 2  # without a lease another may take over after `SILENT_S`
        self._confirmed_at = clock.monotonic()
        self._stopping = threading.Event()
        self._fenced = threading.Event()
        self._on_fenced: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="codesdk-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._every_s)

    def on_fenced(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the host is no longer this worker's."""
        self._on_fenced = callback
        if self.is_fenced:
            callback()

    @property
    def is_fenced(self) -> bool:
        """Whether a newer worker has the host, or it was declared lost."""
        return self._fenced.is_set()

    @property
    def is_recent(self) -> bool:
        """Whether a recent heartbeat succeeded, so the database answers."""
        return self._clock.monotonic() - self._confirmed_at < 2 * self._every_s

    def check(self) -> None:
        """Check the last known answer, without a query.

        Raises:
            HostGone: the host is no longer this worker's.
        """
        if self.is_fenced:
            raise HostGone(
                f"The host {self._host.name} was given up, or a newer worker has it.",
                advice="Start this worker again, so that it takes over the host.",
            )

    def confirm(self) -> None:
        """Check before starting work: the last heartbeat is recent, or a new one succeeds.

        Raises:
            HostGone: the host is no longer this worker's. StorageUnavailable: unknown.
        """
        self.check()
        if self._clock.monotonic() - self._confirmed_at > self._confirm_after_s:
            self._beat()
            self.check()

    def leave(self) -> None:
        """Record a normal stop: placement prefers other hosts, and silence no longer counts."""
        now = self._clock.now().timestamp()

        def leave(unit: Unit) -> None:
            store.mark_stopped(unit.connection, self._host.id, self._host.generation, now)

        try:
            self._writer.run(leave)
        except Fault as fault:
            _log.warning("could not record that this worker stops: %s", fault)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._beat()
            except Fault as fault:
                _log.warning("could not record a heartbeat: %s", fault)
            self.turns += 1
            if self.is_fenced:
                _log.error("the host %s was given up, or a newer worker has it", self._host.name)
                self._on_fenced()
                return

    def _beat(self) -> None:
        began = self._clock.monotonic()  # measured from before the write, which may take long
        if self._writer.run(lambda unit: store.record_heartbeat(unit.connection, self._host.id, self._host.generation)):
            self._confirmed_at = began
        else:
            self._fenced.set()
