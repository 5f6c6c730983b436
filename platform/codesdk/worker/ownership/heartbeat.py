"""The worker's heartbeat: says that the host is served, and hears when it is not this worker's any more.

Observers judge silence on their own clocks (`hosts.watch`). This side judges itself sooner: whoever could not beat for
half the lease asks again before it starts anything (`confirm`), so a worker that was frozen and thaws starts nothing on
a host that was given up meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from codesdk.domain.clock import Clock
from codesdk.errors import ExitCode, Fault
from codesdk.hosts import store
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.run.error_mapping import Released
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.ownership.takeover import SILENT_S

_log = logging.getLogger(__name__)

BEATS_PER_LEASE = 6
"""Heartbeats in one lease: some may be late or lost."""
DEFAULT_INTERVAL_S = 5.0
"""Seconds between them where silence is never judged."""


class HostGone(Released):
    """The host is not this worker's any more."""

    code = "HOST_GONE"
    retryable = True
    exit_code = ExitCode.UNAVAILABLE


class Heartbeat:
    """Beats from `start` to `stop`, on a thread of its own. Safe to use from any thread."""

    def __init__(self, writer: Writer, clock: Clock, host: OwnedHost, lease_s: float) -> None:
        """`lease_s`: seconds of silence after which others take the host for lost; 0: never."""
        self._writer = writer
        self._clock = clock
        self._host = host
        self._every_s = lease_s / BEATS_PER_LEASE if lease_s else DEFAULT_INTERVAL_S
        self.turns = 0
        """How often it has tried to beat, and knows whether it did."""
        self._confirm_after_s = (lease_s or SILENT_S) / 2  # without a lease another may take over after `SILENT_S`
        self._confirmed_at = clock.monotonic()
        self._stopping = threading.Event()
        self._fenced = threading.Event()
        self._on_fenced: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="codesdk-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._every_s)

    def on_fenced(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the host is not this worker's any more."""
        self._on_fenced = callback
        if self.is_fenced:
            callback()

    @property
    def is_fenced(self) -> bool:
        """Whether a newer worker has the host, or somebody gave it up."""
        return self._fenced.is_set()

    @property
    def is_recent(self) -> bool:
        """Whether it was taken lately: the database answers this worker."""
        return self._clock.monotonic() - self._confirmed_at < 2 * self._every_s

    def check(self) -> None:
        """Go on only while the host is ours, as far as is known here.

        Raises:
            HostGone: it is not.
        """
        if self.is_fenced:
            raise HostGone(
                f"The host {self._host.name} was given up, or a newer worker has it.",
                advice="Start this worker again: it then takes the host over anew.",
            )

    def confirm(self) -> None:
        """Before anything starts: go on if the last beat is young, or another one is taken.

        Raises:
            HostGone: the host is not ours. StorageUnavailable: nobody can say.
        """
        self.check()
        if self._clock.monotonic() - self._confirmed_at > self._confirm_after_s:
            self._beat()
            self.check()

    def leave(self) -> None:
        """Say that this worker stops in order: other hosts are chosen first, and nobody judges its silence."""
        now = self._clock.now().timestamp()

        def leave(unit: Unit) -> None:
            store.mark_stopped(unit.connection, self._host.id, self._host.generation, now)

        try:
            self._writer.run(leave)
        except Fault as fault:
            _log.warning("the database does not know that this worker stops: %s", fault)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._beat()
            except Fault as fault:
                _log.warning("a heartbeat was not taken: %s", fault)
            self.turns += 1
            if self.is_fenced:
                _log.error("the host %s was given up, or a newer worker has it", self._host.name)
                self._on_fenced()
                return

    def _beat(self) -> None:
        began = self._clock.monotonic()  # before it is taken: what may take long must not make it younger
        if self._writer.run(lambda unit: store.record_heartbeat(unit.connection, self._host.id, self._host.generation)):
            self._confirmed_at = began
        else:
            self._fenced.set()
