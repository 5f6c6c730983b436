"""Tracks pending approvals: lists them once, then follows the API's feed on a thread."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from codesdk.approvals import Approval, ApprovalState
from codesdk.cli.api_client import ApiClient

FIRST_LISTING_S = 30.0
"""Seconds to wait for the first listing, the same as the requests' timeout."""
STOP_S = 5.0
MAX_RESOLVED = 100
"""Resolved approvals to keep, because one of them may be on the screen."""


class PendingApprovals:
    """A context manager; the list is complete once it is entered."""

    def __init__(self, daemon: ApiClient, session: str | None) -> None:
        self._daemon = daemon
        self._session = session
        self._lock = threading.Lock()
        self._approvals: dict[str, Approval] = {}
        self._fault: BaseException | None = None
        self._listed_once = threading.Event()
        self._stopping = False
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._follow, name="codesdk-approvals", daemon=True)
        self.wakeup_fd, self._wakeup_writer = os.pipe()
        """`wakeup_fd` becomes readable on each change, for callers that also wait for keys."""
        os.set_blocking(self._wakeup_writer, False)

    def __enter__(self) -> Self:
        """Start following and wait for the first listing.

        Raises:
            Fault: the API doesn't answer, or refuses.
        """
        self._thread.start()
        try:
            self._listed_once.wait(FIRST_LISTING_S)
            self.waiting()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def waiting(self) -> list[Approval]:
        """List pending approvals, oldest first.

        Raises:
            Fault: the list is out of date: the API stopped answering, or refuses.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            there = [each for each in self._approvals.values() if each.state is ApprovalState.PENDING]
        return sorted(there, key=lambda each: (each.created_at, each.id))

    def state(self, shown: Approval) -> ApprovalState:
        """Return the approval's current state.

        Raises:
            Fault: see `waiting`.
        """
        with self._lock:
            if self._fault is not None:
                raise self._fault
            return self._approvals.get(shown.id, shown).state

    def _follow(self) -> None:
        try:
            for news in self._daemon.follow_approvals(self._session, self._set_connection, lambda: self._stopping):
                # None: the feed reports every change from here on, so list what is pending now.
                listed = list(self._daemon.pending(self._session)) if news is None else []
                with self._lock:
                    if news is None:
                        self._approvals = {each.id: each for each in listed}
                    else:
                        self._approvals[news.approval.id] = news.approval
                        self._drop_oldest_resolved()
                self._listed_once.set()
                self._notify()
        except BaseException as error:  # noqa: BLE001 (it comes out where somebody looks)
            with self._lock:
                self._fault = error
        self._listed_once.set()
        self._notify()

    def _drop_oldest_resolved(self) -> None:
        """Keep only the newest resolved approvals."""
        over = [id_ for id_, each in self._approvals.items() if each.state is not ApprovalState.PENDING]
        for id_ in over[:-MAX_RESOLVED]:
            del self._approvals[id_]

    def _set_connection(self, channel: socket.socket | None) -> None:
        """Keep the open stream's connection, so that another thread can close it during a read."""
        with self._lock:
            self._connection = channel

    def _notify(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full, so it is readable already
            os.write(self._wakeup_writer, b".")

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(STOP_S)
        if not self._thread.is_alive():  # else it could write to a reused descriptor
            os.close(self.wakeup_fd)
            os.close(self._wakeup_writer)
