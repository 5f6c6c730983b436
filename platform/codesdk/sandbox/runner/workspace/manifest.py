"""Builds the manifest of the workspace: all entries with digests."""

from __future__ import annotations

import os
import stat

from codesdk.sandbox.runner.workspace import digest
from codesdk.sandbox.runner.workspace.files import describe
from codesdk.sandbox.runner.workspace.names import spell
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ENTRIES = 200_000
MAX_DEPTH = 128
MAX_HASHED = 256 * 1024 * 1024
"""Larger files get no digest; compare their size and mtime."""
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def build_manifest(root: Root) -> list[list[Any]]:
    """Return [path, kind, mode, size, mtime in ns, digest or link target or None] of every entry.

    Raises:
        OperationRefused: TOO_LARGE; entries missing from a manifest would look deleted.
    """
    found: list[list[Any]] = []
    top = root.open(".", os.O_RDONLY | os.O_DIRECTORY)
    _walk(top, "", 1, found)
    return found


def _walk(fd: int, prefix: str, depth: int, found: list[list[Any]]) -> None:
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if len(found) >= MAX_ENTRIES or depth > MAX_DEPTH:
                    raise OperationRefused(
                        "TOO_LARGE", f"more than {MAX_ENTRIES} entries, or deeper than {MAX_DEPTH} levels"
                    )
                try:
                    about = entry.stat(follow_symlinks=False)
                    found.append(_row(prefix + entry.name, entry.name, fd, about))
                    below = os.open(entry.name, _ENTER, dir_fd=fd) if stat.S_ISDIR(about.st_mode) else -1
                except OSError:
                    continue  # deleted, or a directory that the tool user can't read
                if below >= 0:
                    _walk(below, prefix + entry.name + "/", depth + 1, found)
    finally:
        os.close(fd)


def _row(path: str, name: str, directory: int, about: os.stat_result) -> list[Any]:
    info = describe(path, about)
    mark = None
    if info["kind"] == "symlink":
        mark = spell(os.readlink(name, dir_fd=directory))
    elif info["kind"] == "file" and about.st_size <= MAX_HASHED:
        mark = _digest(name, directory)
    size = about.st_size if info["kind"] == "file" else 0
    return [info["path"], info["kind"], info["mode"], size, about.st_mtime_ns, mark]


def _digest(name: str, directory: int) -> str | None:
    try:
        fd = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None  # unreadable, or replaced meanwhile: compare size and mtime
    try:
        return digest.of_file(fd, MAX_HASHED)
    except OSError:
        return None
    finally:
        os.close(fd)
