"""`connection.Stream` to a shim, over a Unix socket in the sandbox's directory. Both sides check the peer's uid."""

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
"""Send timeout: the shim waits for the runner, which at most waits for disk I/O."""
CONNECT_S = 10.0
_READ_BYTES = 1 << 18
_CREDENTIALS = struct.Struct("=iII")


class ShimStream:
    """A connection to a sandbox's shim."""

    def __init__(self, directory: Path, stderr_tail: Callable[[], str]) -> None:
        """Connect. `stderr_tail`: reads the tail of the runner's stderr.

        Raises:
            OSError: no shim listens, or another user's process does.
        """
        self.stderr_tail = stderr_tail
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
            # Via the descriptor: the data directory's path may exceed the length limit of socket paths.
            self._socket.connect(f"/proc/self/fd/{here}/link")
        finally:
            os.close(here)
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != os.getuid():
            raise PermissionError("another user listens in the sandbox's place")

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        """Return some bytes of the runner's stdout; None on timeout, b"" at the end."""
        with self._lock:
            if self._closed:
                return b""
            self._reading = True
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            # The shutdown in `close` wakes the poll too, as EOF.
            return self._socket.recv(_READ_BYTES) if poll.poll(timeout_s * 1000) else None
        finally:
            with self._lock:
                self._reading = False
                self._release()

    def close(self) -> None:
        """Close the connection. Thread-safe and idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):  # the shim closed it first
                self._socket.shutdown(socket.SHUT_RDWR)
            self._release()

    def _release(self) -> None:
        # The reader closes the socket: closed during its poll, the descriptor's number could be reused.
        if self._closed and not self._reading:
            self._socket.close()
