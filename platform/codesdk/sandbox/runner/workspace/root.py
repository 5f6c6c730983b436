"""Opens paths below the workspace, safe against symlinks and races.

Uses openat2(2) with RESOLVE_BENEATH. Without that call (gVisor, kernels before 5.6) it walks the path component by
component and follows no symlink at all.
"""

from __future__ import annotations

import errno
import os
import stat

from codesdk.sandbox.runner import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Header = dict[str, Any]

_PATH_MAX = 4096


class OperationRefused(Exception):
    """A refused file operation: a value of `port.FileError` and a message."""

    def __init__(self, error: str, message: str, path: str = "") -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.path = path


_ERRORS = {
    errno.ENOENT: ("NOT_FOUND", "there is no such file or directory"),
    errno.ENOTDIR: ("NOT_A_DIRECTORY", "a part of the path is not a directory"),
    errno.EISDIR: ("IS_A_DIRECTORY", "it is a directory"),
    errno.EACCES: ("PERMISSION_DENIED", "the tool user may not do this"),
    errno.EPERM: ("PERMISSION_DENIED", "the tool user may not do this"),
    errno.EROFS: ("PERMISSION_DENIED", "the file system is read-only"),
    errno.EXDEV: ("OUTSIDE_WORKSPACE", "the path leaves the workspace"),
    errno.ELOOP: ("OUTSIDE_WORKSPACE", "the path goes through a symbolic link that is not followed"),
    errno.ENAMETOOLONG: ("INVALID_PATH", "the path is too long"),
    errno.EINVAL: ("INVALID_PATH", "the path is not valid"),
    errno.ENOSPC: ("NO_SPACE", "the workspace is full; delete files to continue"),
    errno.EDQUOT: ("NO_SPACE", "the workspace is full; delete files to continue"),
    errno.EFBIG: ("TOO_LARGE", "the file is larger than the profile allows"),
    errno.ENXIO: ("NOT_A_FILE", "it is not a regular file"),
    errno.EMFILE: ("TOO_LARGE", "too many files at once"),
    errno.ENOTEMPTY: ("IS_A_DIRECTORY", "it is a directory that is not empty"),
}


def refusal_of(error: OSError) -> OperationRefused:
    """Return the refusal for an OSError."""
    word, sentence = _ERRORS.get(error.errno or 0, ("PERMISSION_DENIED", os.strerror(error.errno or 0)))
    return OperationRefused(word, sentence)


def catch_errors(work: Callable[[], Header]) -> Header:
    """Run work and turn every error into an answer, so that the thread survives."""
    try:
        return work()
    except OperationRefused as error:
        refused = error
    except OSError as error:
        refused = refusal_of(error)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
        return {"error": "BAD_REQUEST", "message": repr(error)}
    return {"refused": refused.error, "path": refused.path, "message": refused.message}


def relative(path: str, workspace: str) -> str:
    """Return a path relative to the workspace; "." for the workspace itself.

    Raises:
        OperationRefused: the path contains a NUL, is too long, or leaves the workspace lexically.
    """
    if "\0" in path:
        raise OperationRefused("INVALID_PATH", "the path contains a NUL character")
    if len(os.fsencode(path)) >= _PATH_MAX:
        raise OperationRefused("INVALID_PATH", "the path is too long")
    if path.startswith("/"):
        if path != workspace and not path.startswith(workspace.rstrip("/") + "/"):
            raise OperationRefused("OUTSIDE_WORKSPACE", "an absolute path must begin with " + workspace)
        path = path[len(workspace) :]
    kept = [part for part in path.split("/") if part not in ("", ".")]
    level = 0
    for part in kept:
        level += -1 if part == ".." else 1
        if level < 0:
            raise OperationRefused("OUTSIDE_WORKSPACE", "the path leaves the workspace")
    return "/".join(kept) or "."


class Root:
    """The open workspace directory. Stays the same if another is mounted or renamed over its path."""

    def __init__(self, workspace: str, has_openat2: bool = True) -> None:
        self.workspace = workspace
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            self.fd = os.open(workspace, flags)
        except PermissionError:
            os.chmod(workspace, 0o755)  # noqa: S103 - see `ensure_accessible`
            self.fd = os.open(workspace, flags)
        self._has_openat2 = has_openat2 and self._probe()

    def ensure_accessible(self) -> None:
        """Undo a tool's `chmod 000` of the workspace. Runs as its owner, the tool user."""
        if os.fstat(self.fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(self.fd, 0o755)

    def _probe(self) -> bool:
        try:
            os.close(kernel.openat2(self.fd, ".", os.O_PATH, 0, kernel.RESOLVE_BENEATH))
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EPERM):
                return False  # an older kernel, gVisor, or a seccomp profile without the call
            raise
        return True

    def open(self, path: str, flags: int, mode: int = 0, links: bool = True) -> int:
        """Open a path returned by `relative`. `links`: follow symlinks that stay in the workspace.

        Raises:
            OSError: EXDEV or ELOOP if the path leaves the workspace or has a link that isn't followed.
        """
        if not self._has_openat2:
            return self._walk(path, flags, mode)
        resolve = kernel.RESOLVE_BENEATH | (kernel.RESOLVE_NO_MAGICLINKS if links else kernel.RESOLVE_NO_SYMLINKS)
        for _ in range(128):
            try:
                return kernel.openat2(self.fd, path, flags, mode, resolve)
            except OSError as error:
                if error.errno != errno.EAGAIN:  # EAGAIN: something was renamed during the lookup
                    raise
        raise OSError(errno.EXDEV, "renamed repeatedly while it was opened")

    def _walk(self, path: str, flags: int, mode: int) -> int:
        parts = path.split("/")
        if ".." in parts:
            raise OSError(errno.EXDEV, "dot-dot without openat2")
        here = os.dup(self.fd)
        try:
            for part in parts[:-1]:
                below = _open_component(part, os.O_PATH | os.O_DIRECTORY, 0, here)
                os.close(here)
                here = below
            return _open_component(parts[-1], flags, mode, here)
        finally:
            os.close(here)

    def open_parent(self, path: str, create: bool = False, links: bool = True) -> tuple[int, str]:
        """Open the parent directory; returns its descriptor and the last name. `create`: create missing directories."""
        parent, _, name = path.rpartition("/")
        if name in (".", "..", ""):
            raise OSError(errno.EISDIR, "a directory, not a name in one")
        parent = parent or "."
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self.open(parent, flags, 0, links), name
        except FileNotFoundError:
            if not create:
                raise
        self._make_directories(parent.split("/"), links)
        return self.open(parent, flags, 0, links), name

    def _make_directories(self, parts: list[str], links: bool) -> None:
        for count in range(1, len(parts) + 1):
            above = self.open("/".join(parts[: count - 1]) or ".", os.O_RDONLY | os.O_DIRECTORY, 0, links)
            try:
                os.mkdir(parts[count - 1], 0o755, dir_fd=above)
            except FileExistsError:
                pass  # opening it fails if it isn't a directory
            finally:
                os.close(above)


def _open_component(name: str, flags: int, mode: int, directory: int) -> int:
    if flags & os.O_DIRECTORY and not flags & os.O_PATH:
        # gVisor (2022) follows a link in the last component with O_DIRECTORY alone, but not together with O_PATH.
        below = _open_component(name, os.O_PATH | os.O_DIRECTORY, 0, directory)
        try:
            return os.open(".", flags | os.O_CLOEXEC, mode, dir_fd=below)
        finally:
            os.close(below)
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    except NotADirectoryError:
        # With O_DIRECTORY a symlink gives ENOTDIR; raise ELOOP instead, as openat2 does.
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "a symbolic link") from None
        raise
