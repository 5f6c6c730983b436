"""`connection.Stream` to a porter: a Unix socket in the sandbox's own directory, checked on both sides by the kernel's word."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

SEND_S = 60.0
"""How long the porter may take bytes: it waits for the runner, and the runner for a disk at most."""
CONNECT_S = 10.0
_READ_BYTES = 1 << 18
_CREDENTIALS = struct.Struct("=iII")


class ShimStream:
    """One connection to a sandbox's porter."""

    def __init__(self, directory: Path, said: Callable[[], str]) -> None:
        """Connect.

        Raises:
            OSError: nobody listens, or whoever listens is another user's process.
        """
        self._said = said
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_S)
        try:
            self._connect(directory)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(SEND_S)
        self._lock = threading.Lock()
        self._closed = False
        self._reading = False

    def _connect(self, directory: Path) -> None:
        here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # Through the descriptor: a data directory's path may be longer than a socket's may be.
            self._socket.connect(f"/proc/self/fd/{here}/link")
        finally:
            os.close(here)
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != os.getuid():
            raise PermissionError("another user listens in the sandbox's place")

    def send(self, data: bytes) -> None:
        """All of it."""
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        """Some bytes of the runner's stdout."""
        with self._lock:
            if self._closed:
                return b""
            self._reading = True
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            # A shutdown by `close` wakes it as well, as the end of the stream.
            return self._socket.recv(_READ_BYTES) if poll.poll(timeout_s * 1000) else None
        finally:
            with self._lock:
                self._reading = False
                self._release()

    def said(self) -> str:
        """The tail of the runner's stderr."""
        return self._said()

    def close(self) -> None:
        """End the connection, from any thread; doing it twice is no error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):  # the porter was faster
                self._socket.shutdown(socket.SHUT_RDWR)
            self._release()

    def _release(self) -> None:
        # Not under a reader's poll: the number could be somebody else's by then. The reader does it when it is through.
        if self._closed and not self._reading:
            self._socket.close()
