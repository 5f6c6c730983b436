"""Streams the workspace as a tar, one piece in memory at a time."""

from __future__ import annotations

import os
import stat
import tarfile

from codesdk.sandbox.runner.workspace.archive import MAX_BYTES, MAX_ENTRIES
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 18
MAX_DEPTH = 256


class Packer:
    """Packs the workspace into a tar. Skips and counts sockets, FIFOs, devices and unreadable entries."""

    def __init__(self, root: Root, max_bytes: int = MAX_BYTES) -> None:
        self._root = root
        self._left = max_bytes
        self._links: dict[tuple[int, int], str] = {}
        self.entries = 0
        self.left_out = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the tar in pieces.

        Raises:
            OperationRefused: TOO_LARGE.
        """
        yield from self._directory(self._root.open(".", os.O_RDONLY | os.O_DIRECTORY), "", 1)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _directory(self, fd: int, prefix: str, depth: int) -> Iterator[bytes]:
        try:
            with os.scandir(fd) as entries:
                names = sorted(entry.name for entry in entries)
            for name in names:
                try:
                    about = os.stat(name, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed by a file operation; tools are frozen
                yield from self._entry(fd, name, prefix + name, about, depth)
        finally:
            os.close(fd)

    def _entry(self, directory: int, name: str, path: str, about: os.stat_result, depth: int) -> Iterator[bytes]:
        if self.entries >= MAX_ENTRIES or depth > MAX_DEPTH:
            raise OperationRefused("TOO_LARGE", f"more than {MAX_ENTRIES} entries, or deeper than {MAX_DEPTH} levels")
        info = tarfile.TarInfo(path)
        info.mode = stat.S_IMODE(about.st_mode)
        seconds, rest = divmod(about.st_mtime_ns, 10**9)
        info.pax_headers = {"mtime": f"{seconds}.{rest:09d}"}  # a float would round the nanoseconds
        try:
            if stat.S_ISLNK(about.st_mode):
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=directory)
                yield self._head(info)
            elif stat.S_ISDIR(about.st_mode):
                below = os.open(name, _ENTER, dir_fd=directory)
                info.type = tarfile.DIRTYPE
                yield self._head(info)
                yield from self._directory(below, path + "/", depth + 1)
            elif stat.S_ISREG(about.st_mode):
                yield from self._file(directory, name, info, about)
            else:
                self.left_out += 1
        except (PermissionError, BlockingIOError):
            self.left_out += 1  # the tool user can't read it, or a tool holds a lease on it

    def _head(self, info: tarfile.TarInfo) -> bytes:
        self.entries += 1
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _file(self, directory: int, name: str, info: tarfile.TarInfo, about: os.stat_result) -> Iterator[bytes]:
        identity = (about.st_dev, about.st_ino)
        if about.st_nlink > 1 and identity in self._links:
            info.type, info.linkname = tarfile.LNKTYPE, self._links[identity]
            yield self._head(info)
            return
        fd = os.open(name, _READ, dir_fd=directory)
        try:
            size = os.fstat(fd).st_size
            self._left -= size
            if self._left < 0:
                raise OperationRefused("TOO_LARGE", f"the workspace has more than {MAX_BYTES} bytes")
            if about.st_nlink > 1:
                self._links[identity] = info.name
            info.size = size
            yield self._head(info)
            left = size
            while left > 0:
                part = os.read(fd, min(_PIECE, left)) or bytes(min(_PIECE, left))  # pad a file that shrank
                left -= len(part)
                yield part
            yield bytes(-size % tarfile.BLOCKSIZE)
        finally:
            os.close(fd)
