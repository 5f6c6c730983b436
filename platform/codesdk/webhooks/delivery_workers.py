"""Threads of one process that create and send deliveries. Any number of processes may run them: leases in the database coordinate."""

from __future__ import annotations

import logging
import threading

from codesdk.errors import Fault
from codesdk.webhooks.delivery_sender import DeliverySender
from codesdk.webhooks.fanout import EventFanout

_log = logging.getLogger(__name__)


class DeliveryWorkers:
    """One thread that reads the event log, and `threads` that send."""

    def __init__(self, feed: EventFanout, sender: DeliverySender, *, name: str, threads: int, poll_s: float) -> None:
        """`name`: unique to this process; `threads`: senders, 0 for none; `poll_s`: seconds between polls."""
        self._feed = feed
        self._sender = sender
        self._name = name
        self._poll_s = poll_s
        self._stopping = threading.Event()
        self._wakeup = threading.Condition()
        self._threads = (
            [threading.Thread(target=self._read, name="codesdk-webhook-feed", daemon=True)] if threads else []
        )
        self._threads += [
            threading.Thread(
                target=self._send, args=(f"{name}/{number}",), name=f"codesdk-webhook-{number}", daemon=True
            )
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, deadline_s: float = 5.0) -> None:
        """Stop. A delivery that does not finish within `deadline_s` is sent again after its lease."""
        self._stopping.set()
        self.wake()
        for thread in self._threads:
            thread.join(deadline_s if thread.is_alive() else 0)

    def wake(self) -> None:
        """Send now instead of at the next poll."""
        with self._wakeup:
            self._wakeup.notify_all()

    def _read(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._feed.step():
                    self.wake()
                    continue
            except Fault as fault:
                _log.warning("webhooks: the event log cannot be read: %s", fault)
            except Exception:  # noqa: BLE001 (nothing restarts this thread)
                _log.exception("webhooks: reading the event log failed")
            self._stopping.wait(self._poll_s)

    def _send(self, holder: str) -> None:
        while not self._stopping.is_set():
            try:
                if self._sender.send_next(holder) is not None:
                    continue
            except Fault as fault:
                _log.warning("webhooks: sending stopped early: %s", fault)
            except Exception:  # noqa: BLE001 (nothing restarts this thread)
                _log.exception("webhooks: sending failed")
            with self._wakeup:
                self._wakeup.wait(self._poll_s * 2)
