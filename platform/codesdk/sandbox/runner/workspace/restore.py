"""Unpacks a tar while it arrives, with modes, times and symlinks."""

from __future__ import annotations

import os
import tarfile
import zlib

from codesdk.sandbox.runner.workspace import archive
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue import SimpleQueue
    from typing import Any, Callable
else:
    from _queue import SimpleQueue

PIECE_TIMEOUT_S = 60.0
"""How long to wait for the next piece."""


class Feed:
    """File object for `tarfile`: returns the pieces that the loop puts in, and confirms each when consumed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[bytes | None, Callable[[], None]]] = SimpleQueue()
        self._piece = memoryview(b"")
        self._is_over = False
        self.finish: Callable[[], None] = lambda: None
        """Confirms the last piece."""

    def put(self, piece: bytes | None, taken: Callable[[], None]) -> None:
        """Add a piece; None ends the input. Called on the loop."""
        self._queue.put((piece, taken))

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes. Called on the thread.

        Raises:
            OperationRefused: the next piece didn't arrive within `PIECE_TIMEOUT_S`.
        """
        found = bytearray()
        while len(found) < size and not self._is_over:
            if not self._piece:
                self._next()
            part = self._piece[: size - len(found)]
            self._piece = self._piece[len(part) :]
            found += part
        return bytes(found)

    def drain(self) -> dict[str, Any]:
        """Consume the rest of the input."""
        while not self._is_over:
            self._next()
        return {}

    def _next(self) -> None:
        try:
            piece, taken = self._queue.get(timeout=PIECE_TIMEOUT_S)
        except Exception as error:  # _queue.Empty, whose name differs between Python versions
            raise OperationRefused("ARCHIVE_REFUSED", "its next piece did not arrive in time") from error
        if piece is None:
            self._is_over = True
            self.finish = taken
        else:
            self._piece = memoryview(piece)
            taken()


def unpack(root: Root, feed: Feed) -> int:
    """Unpack everything; returns the number of entries.

    Raises:
        OperationRefused: ARCHIVE_REFUSED with the entry and the reason, or an error such as NO_SPACE. Entries written
            before that stay.
    """
    validator = archive.EntryValidator(root.workspace, links_anywhere=True)
    directories: list[tuple[str, int, tuple[int, int]]] = []
    try:
        with tarfile.open(fileobj=feed, mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                name = validator.validate(member)
                if name == ".":
                    continue
                directory, last = root.open_parent(name, create=True, links=False)
                try:
                    archive.write_entry(root, tar, member, directory, last, exact=True)
                finally:
                    os.close(directory)
                if member.isdir():
                    directories.append((name, member.mode & 0o777, archive.entry_times(member)))
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        raise OperationRefused("ARCHIVE_REFUSED", "it is not a readable tar: " + str(error)) from error
    for name, mode, times in reversed(directories):  # creating an entry changes its directory's time
        _settle(root, name, mode, times)
    return validator.count


def _settle(root: Root, name: str, mode: int, times: tuple[int, int]) -> None:
    fd = root.open(name, os.O_RDONLY | os.O_DIRECTORY, 0, False)
    try:
        os.utime(fd, ns=times)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
