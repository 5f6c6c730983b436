"""Detects changes in a directory tree, by inotify or by polling.

Both watchers run on the thread for long operations, with the tool's rights, and follow no symbolic link. A path that
can't be observed is reported as "overflow": there may be unknown changes below it.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.workspace import files
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    Change = tuple[str, str, str]
    """Kind (a value of `port.ChangeKind`), path, and the source path of a move."""
    State = tuple[int, int, int, int, int]

MAX_DIRECTORIES = 8192
"""Maximum inotify watches per tree; each costs kernel memory, charged to the sandbox."""
MAX_POLLED_ENTRIES = 50_000
"""Maximum entries of a polled tree."""
MAX_FOUND = 16_384
"""Maximum entries of new directories reported one by one; more become an "overflow"."""
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNREADABLE_ERRORS = frozenset((errno.EACCES, errno.EPERM, errno.ENAMETOOLONG))
_GONE_ERRORS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV))

LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS))
"""Errors of an inotify limit, or of a kernel without inotify."""

# linux/inotify.h
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLYDIR, _DIRECTORY = 0x4000, 0x8000, 0x1000000, 0x40000000
_MASK = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
) | _ONLYDIR
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_MOVE_PAIR_S = 0.002
"""How long to wait for the second half of a move, which can arrive a little later."""


_GONE_MESSAGE = "the watched directory was deleted or moved"


class WatchEnded(OperationRefused):
    """The watch has ended; the message has the reason."""

    def __init__(self, message: str) -> None:
        super().__init__("TOO_LARGE", message)


def _join(directory: str, name: str) -> str:
    return name if directory == "." else directory + "/" + name


class InotifyWatcher:
    """Detects changes by inotify. Its instance counts against the tool's uid, not against other sandboxes."""

    def __init__(self, root: Root, top: str) -> None:
        """Watch the tree at `top`, a path that `relative` returned.

        Raises:
            OSError: no such directory; EMFILE or ENOSPC at the kernel's or our limit.
        """
        self._root = root
        self._top = top
        self._paths: dict[int, str] = {}
        self._moving: tuple[int, str, bool] | None = None
        self.fd = kernel.inotify()
        self.unseen: list[Change] = []
        """Paths that couldn't be watched at the start."""
        try:
            self._identity = _identity(root, top)
            self._walk(top, None)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Stop watching."""
        os.close(self.fd)

    def read(self) -> list[Change]:
        """Return the changes since the last read.

        Raises:
            OSError: EMFILE or ENOSPC at a limit; later changes may be missed.
            WatchEnded: the watched directory itself was deleted or moved.
        """
        found: list[Change] = []
        for _ in range(2):
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                break
            place = 0
            while place < len(data):
                wd, mask, cookie, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size + length
                self._on_event(wd, mask, cookie, os.fsdecode(data[place - length : place].rstrip(b"\0")), found)
            if self._moving is None:
                break
            time.sleep(_MOVE_PAIR_S)
        self._flush_move(found)
        if found:
            _check_identity(self._root, self._top, self._identity)
        return found

    def _on_event(self, wd: int, mask: int, cookie: int, name: str, found: list[Change]) -> None:
        if mask & _OVERFLOW:
            self._flush_move(found)
            found.append(("overflow", self._top, ""))
            self._paths.clear()  # lost events may be renames; walking again gives known directories the same numbers
            self._walk(self._top, found, known=True)
            return
        if mask & _IGNORED:
            self._paths.pop(wd, None)
            return
        directory = self._paths.get(wd)
        if directory is None:
            return
        if not name:
            if directory == self._top and mask & (_DELETE_SELF | _MOVE_SELF):
                self._flush_move(found)
                raise WatchEnded(_GONE_MESSAGE)
            return  # the parent's watch reports changes of the directory itself
        if not (mask & _MOVED_TO and self._moving is not None and self._moving[0] == cookie):
            self._flush_move(found)
        if name not in files.TEMPORARIES:  # renaming one into place then looks like a move into the tree: "created"
            self._record(_join(directory, name), mask, cookie, found)

    def _record(self, path: str, mask: int, cookie: int, found: list[Change]) -> None:
        is_directory = bool(mask & _DIRECTORY)
        if mask & _MOVED_FROM:
            self._moving = (cookie, path, is_directory)
        elif mask & _MOVED_TO and self._moving is not None:
            source, self._moving = self._moving[1], None
            found.append(("moved", path, source))
            if is_directory:
                self._forget(source)
                self._walk(path, found, known=True)
        elif mask & (_CREATE | _MOVED_TO):
            found.append(("created", path, ""))
            if is_directory:
                self._walk(path, found)
        else:
            found.append(("deleted" if mask & _DELETE else "changed", path, ""))

    def _flush_move(self, found: list[Change]) -> None:
        """Report a move without a second half as a deletion: its target is outside the watched tree."""
        if self._moving is not None:
            (_, path, is_directory), self._moving = self._moving, None
            found.append(("deleted", path, ""))
            if is_directory:
                for wd in self._forget(path):
                    kernel.inotify_forget(self.fd, wd)

    def _forget(self, path: str) -> list[int]:
        """Drop a directory and everything below it; returns their watch descriptors."""
        beneath = path + "/"
        gone = [wd for wd, known in self._paths.items() if known == path or known.startswith(beneath)]
        for wd in gone:
            del self._paths[wd]
        return gone

    def _walk(self, path: str, found: list[Change] | None, known: bool = False) -> None:
        """Watch a directory and all below it. `found`: report its entries, unless `known` (it was renamed)."""
        before = set(self._paths.values())
        rest = [path]
        while rest:
            here = rest.pop()
            fd = _open_directory(self._root, here, self.unseen if found is None else found)
            if fd < 0:
                continue
            try:
                self._add(fd, here)
                with os.scandir(fd) as entries:
                    for entry in entries:
                        below = _join(here, entry.name)
                        is_directory = entry.is_dir(follow_symlinks=False)
                        if is_directory:
                            rest.append(below)
                            if len(rest) > MAX_DIRECTORIES:  # they couldn't all be added
                                raise OSError(errno.ENOSPC, "too many directories")
                        if found is not None and not known and here not in before:
                            self._record_created(entry.name, below, found)
            finally:
                os.close(fd)

    def _record_created(self, name: str, path: str, found: list[Change]) -> None:
        if name in files.TEMPORARIES:
            return
        if len(found) < MAX_FOUND:
            found.append(("created", path, ""))
        elif found[-1][0] != "overflow":
            found.append(("overflow", self._top, ""))

    def _add(self, fd: int, path: str) -> None:
        if len(self._paths) >= MAX_DIRECTORIES:
            raise OSError(errno.ENOSPC, "too many directories")
        self._paths[kernel.inotify_add(self.fd, fd, _MASK)] = path


class PollingWatcher:
    """Detects changes by polling. Slower than inotify, and merges changes between two scans."""

    fd = -1

    def __init__(self, root: Root, top: str) -> None:
        """Scan the tree at `top`, a path that `relative` returned.

        Raises:
            OSError: no such directory.
            WatchEnded: the tree has too many entries.
        """
        self._root = root
        self._top = top
        self.unseen: list[Change] = []
        self._identity = _identity(root, top)
        self._before, self.unseen = self._scan()

    def close(self) -> None:
        """Do nothing."""

    def read(self) -> list[Change]:
        """Return the changes since the last scan.

        Raises:
            WatchEnded: the directory is gone, or the tree has too many entries.
        """
        _check_identity(self._root, self._top, self._identity)
        before, (now, unseen) = self._before, self._scan()
        self._before = now
        blind = [path + "/" for _, path, _ in unseen]
        for path in [path for path in before if any(path.startswith(place) for place in blind)]:
            now.setdefault(path, before[path])  # unreadable now; it may still exist
        changes = [change for change in unseen if change not in self.unseen]
        self.unseen = unseen
        return _differences(before, now) + changes

    def _scan(self) -> tuple[dict[str, State], list[Change]]:
        found: dict[str, State] = {}
        unseen: list[Change] = []
        rest = [self._top]
        while rest:
            here = rest.pop()
            fd = _open_directory(self._root, here, unseen)
            if fd < 0:
                continue
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        try:
                            about = entry.stat(follow_symlinks=False)
                        except OSError:
                            continue  # deleted during the scan
                        below = _join(here, entry.name)
                        is_directory = stat.S_ISDIR(about.st_mode)
                        if is_directory:
                            rest.append(below)
                        if entry.name not in files.TEMPORARIES:
                            found[below] = _state(about, is_directory)
                        if len(found) > MAX_POLLED_ENTRIES:
                            raise WatchEnded("more than " + str(MAX_POLLED_ENTRIES) + " entries cannot be polled")
            finally:
                os.close(fd)
        return found, unseen


def _open_directory(root: Root, path: str, unseen: list[Change]) -> int:
    """Open a directory. Returns -1 if it is gone, or if it can't be read and was added to `unseen`."""
    try:
        return root.open(path, _ENTER, 0, links=False)
    except OSError as error:
        if error.errno in _UNREADABLE_ERRORS:
            unseen.append(("overflow", path, ""))
        elif error.errno not in _GONE_ERRORS:
            raise
    return -1


def _identity(root: Root, path: str) -> tuple[int, int]:
    """Return device and inode of a directory."""
    fd = root.open(path, _ENTER, 0, links=False)
    try:
        about = os.fstat(fd)
        return about.st_dev, about.st_ino
    finally:
        os.close(fd)


def _check_identity(root: Root, path: str, identity: tuple[int, int]) -> None:
    """Raise WatchEnded if the path is gone or now leads to another directory."""
    try:
        found = _identity(root, path)
    except OSError as error:
        if error.errno in LIMITS:
            raise
        found = None
    if found != identity:
        raise WatchEnded(_GONE_MESSAGE)


def _state(about: os.stat_result, is_directory: bool) -> State:
    if is_directory:  # its entries report their own changes
        return (about.st_ino, about.st_mode, 0, 0, 0)
    return (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def _differences(before: dict[str, State], now: dict[str, State]) -> list[Change]:
    gone = [path for path in before if path not in now]
    fresh = sorted(path for path in now if path not in before)
    by_inode: dict[tuple[int, int], list[str]] = {}
    for path in gone:
        by_inode.setdefault((before[path][0], stat.S_IFMT(before[path][1])), []).append(path)
    moved: dict[str, str] = {}
    changes: list[Change] = []
    for path in fresh:
        sources = by_inode.get((now[path][0], stat.S_IFMT(now[path][1])), [])
        if len(sources) != 1 or sources[0] in moved.values():
            changes.append(("created", path, ""))
            continue
        source = moved[path] = sources[0]
        above, above_source = path.rpartition("/"), source.rpartition("/")
        if moved.get(above[0]) != above_source[0] or above[2] != above_source[2]:
            changes.append(("moved", path, source))  # otherwise it moved with its directory
        if before[source][2:4] != now[path][2:4]:
            changes.append(("changed", path, ""))
    left = set(gone) - set(moved.values())
    changes += [("deleted", path, "") for path in sorted(left, reverse=True)]
    changes += [("changed", path, "") for path in sorted(now) if path in before and before[path] != now[path]]
    return changes
