"""Creates directories, and moves and deletes entries. Safe against symlinks and for trees of any depth."""

from __future__ import annotations

import errno
import os
import stat

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.workspace.files import describe
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from codesdk.sandbox.runner.workspace.files import Info

MAX_DELETED = 500_000
"""Maximum entries deleted by one request."""
_MAX_OPEN = 128
"""Directory levels open at once; deeper subtrees are moved up first."""
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_directory(root: Root, path: str) -> Info:
    """Create a directory and its parents. Idempotent."""
    clean = relative(path, root.workspace)
    if clean != ".":
        directory, name = root.open_parent(clean, create=True)
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise OperationRefused("NOT_A_DIRECTORY", "something else has that name") from None
        finally:
            os.close(directory)
    fd = root.open(clean, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return describe(clean, os.fstat(fd))
    finally:
        os.close(fd)


def move(root: Root, source: str, target: str, replace: bool) -> Info:
    """Rename within the workspace; symlinks aren't followed."""
    clean, wanted = relative(source, root.workspace), relative(target, root.workspace)
    if wanted == clean or wanted.startswith(clean + "/"):
        raise OperationRefused("INVALID_PATH", "a directory cannot be moved into itself")
    from_directory, name = root.open_parent(clean)
    try:
        os.stat(name, dir_fd=from_directory, follow_symlinks=False)
        to_directory, new_name = root.open_parent(wanted, create=True)
        try:
            if replace:
                os.rename(name, new_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)
            else:
                _rename_new(from_directory, name, to_directory, new_name)
            return describe(wanted, os.stat(new_name, dir_fd=to_directory, follow_symlinks=False))
        finally:
            os.close(to_directory)
    finally:
        os.close(from_directory)


def _rename_new(source: int, name: str, target: int, new_name: str) -> None:
    try:
        kernel.rename_new(source, name, target, new_name)
    except FileExistsError:
        raise OperationRefused("CONFLICT", "the new name already exists") from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        # Without RENAME_NOREPLACE: check, then rename. Moving a directory into itself also ends here and fails again.
        if _exists(new_name, target):
            raise OperationRefused("CONFLICT", "the new name already exists") from None
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def delete(root: Root, path: str, recursive: bool, stopped: Callable[[], bool] = lambda: False) -> int:
    """Delete an entry, with `recursive` a whole tree; returns the number of entries.

    Raises:
        OperationRefused: CANCELLED if `stopped` returned True before all were deleted; TOO_LARGE as for `clear`.
    """
    directory, name = root.open_parent(relative(path, root.workspace))
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
            return 1
        if not recursive:
            os.rmdir(name, dir_fd=directory)
            return 1
        top = _enter(name, directory)
        try:
            count = clear(top, stopped)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=directory)
        return count + 1
    finally:
        os.close(directory)


def clear(top: int, stopped: Callable[[], bool] = lambda: False) -> int:
    """Delete everything in an open directory; returns the number of entries.

    Raises:
        OperationRefused: TOO_LARGE if there are more than `MAX_DELETED`, also because a tool keeps creating new ones.
            CANCELLED as for `delete`.
    """
    count = 0
    stack: list[tuple[int, str]] = []
    try:
        while True:
            here = stack[-1][0] if stack else top
            below, removed = _clear_files(here, MAX_DELETED - count, stopped)
            count += removed
            if stopped():
                raise OperationRefused("CANCELLED", f"it was cancelled; {count} entries were deleted before that")
            if count >= MAX_DELETED:
                raise OperationRefused(
                    "TOO_LARGE", f"more than {MAX_DELETED} entries; those were deleted, ask again for the rest"
                )
            if below is None:
                if not stack:
                    return count
                fd, name = stack.pop()
                os.close(fd)
                _remove(name, stack[-1][0] if stack else top)
                count += 1
            elif len(stack) >= _MAX_OPEN:
                os.rename(below, ".codesdk-" + os.urandom(8).hex(), src_dir_fd=here, dst_dir_fd=top)
            else:
                stack.append((_enter(below, here), below))
    finally:
        for fd, _ in stack:
            os.close(fd)


def _clear_files(here: int, limit: int, stopped: Callable[[], bool]) -> tuple[str | None, int]:
    """Delete non-directories; returns the first subdirectory, or None if the directory is empty or it was stopped."""
    count = 0
    while True:
        before = count
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    return entry.name, count
                try:
                    os.unlink(entry.name, dir_fd=here)
                except FileNotFoundError:
                    continue  # a tool deleted it first
                count += 1
                if count >= limit or stopped():
                    return None, count
        if count == before:  # deleting while listing can hide entries, so list again until none is left
            return None, count


def _enter(name: str, directory: int) -> int:
    try:
        fd = os.open(name, _ENTER, dir_fd=directory)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=directory)  # the tool removed its own access
        fd = os.open(name, _ENTER, dir_fd=directory)
    if ~os.fstat(fd).st_mode & stat.S_IRWXU:  # a read-only directory, as in Go's module cache
        os.fchmod(fd, 0o700)
    return fd


def _remove(name: str, directory: int) -> None:
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError:
        pass  # a tool moved it or added an entry: the next round or the caller handles it
