"""What waits for a person, as the API tells it: listed once, then kept up by its feed on a thread of its own."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from codesdk.approvals import Approval, ApprovalState
from codesdk.cli.daemon import Daemon

BEGIN_S = 30.0
"""Seconds until the first listing; the requests' own limit is the same."""
END_S = 5.0
KEPT = 100
"""Approvals that are over and remembered, since one of them may be on the screen."""


class Pending:
    """A context manager: what waits is there from its beginning on."""

    def __init__(self, daemon: Daemon, session: str | None) -> None:
        self._daemon = daemon
        self._session = session
        self._guard = threading.Lock()
        self._known: dict[str, Approval] = {}
        self._fault: BaseException | None = None
        self._begun = threading.Event()
        self._ended = False
        self._channel: socket.socket | None = None
        self._thread = threading.Thread(target=self._follow, name="codesdk-approvals", daemon=True)
        self.bell, self._ring = os.pipe()
        """`bell` becomes readable with each change, for who waits for keys too."""
        os.set_blocking(self._ring, False)

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            Fault: the API does not answer, or refuses.
        """
        self._thread.start()
        try:
            self._begun.wait(BEGIN_S)
            self.waiting()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def waiting(self) -> list[Approval]:
        """Oldest first.

        Raises:
            Fault: it is not known any more: the API stays away, or refuses.
        """
        with self._guard:
            if self._fault is not None:
                raise self._fault
            there = [each for each in self._known.values() if each.state is ApprovalState.PENDING]
        return sorted(there, key=lambda each: (each.created_at, each.id))

    def state(self, shown: Approval) -> ApprovalState:
        """As it is by now.

        Raises:
            Fault: see `waiting`.
        """
        with self._guard:
            if self._fault is not None:
                raise self._fault
            return self._known.get(shown.id, shown).state

    def _follow(self) -> None:
        try:
            for news in self._daemon.follow_approvals(self._session, self._hold, lambda: self._ended):
                # None: from here on everything is told, so what waits now is listed.
                listed = list(self._daemon.pending(self._session)) if news is None else []
                with self._guard:
                    if news is None:
                        self._known = {each.id: each for each in listed}
                    else:
                        self._known[news.approval.id] = news.approval
                        self._forget()
                self._begun.set()
                self._say()
        except BaseException as error:  # noqa: BLE001 (it comes out where somebody looks)
            with self._guard:
                self._fault = error
        self._begun.set()
        self._say()

    def _forget(self) -> None:
        """Keep only the newest of those that are over."""
        over = [id_ for id_, each in self._known.items() if each.state is not ApprovalState.PENDING]
        for id_ in over[:-KEPT]:
            del self._known[id_]

    def _hold(self, channel: socket.socket | None) -> None:
        """The stream's connection, as long as it is open: to end it while it is read."""
        with self._guard:
            self._channel = channel

    def _say(self) -> None:
        with suppress(BlockingIOError):  # full: it has been said often enough
            os.write(self._ring, b".")

    def _end(self) -> None:
        with self._guard:
            self._ended = True
            if self._channel is not None:
                with suppress(OSError):
                    self._channel.shutdown(socket.SHUT_RDWR)
        self._thread.join(END_S)
        if not self._thread.is_alive():  # else it could write to another's file
            os.close(self.bell)
            os.close(self._ring)
