"""File operations in the workspace. They run on the file thread with the tool's effective uid and gid."""

from __future__ import annotations

import errno
import os
import stat

from codesdk.sandbox.runner.workspace import digest
from codesdk.sandbox.runner.workspace.names import spell
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, refusal_of, relative

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # non-blocking: opening a FIFO must not hang the file thread
MAX_BATCH = 500
MAX_CHECKED = 64 * 1024 * 1024
"""Largest file whose content is compared before it is replaced."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Info = dict[str, Any]


TEMPORARIES: dict[str, None] = {}
"""Recent names of temporary files, newest last; watches don't report them."""
_REMEMBERED = 4096


def temporary_name() -> str:
    """Return a new name for a temporary file in the target's directory."""
    name = ".codesdk-" + os.urandom(8).hex()
    TEMPORARIES[name] = None
    if len(TEMPORARIES) > _REMEMBERED:
        del TEMPORARIES[next(iter(TEMPORARIES))]
    return name


def describe(path: str, status: os.stat_result) -> Info:
    """Describe one entry, with the fields of `port.FileInfo`."""
    mode = status.st_mode
    kind = "other"
    for test, word in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink")):
        if test(mode):
            kind = word
    return {
        "path": spell(path),
        "kind": kind,
        "size": status.st_size,
        "mode": stat.S_IMODE(mode),
        "mtime": status.st_mtime,
    }


def _regular(fd: int) -> os.stat_result:
    status = os.fstat(fd)
    if stat.S_ISDIR(status.st_mode):
        raise OperationRefused("IS_A_DIRECTORY", "it is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise OperationRefused("NOT_A_FILE", "it is not a regular file")
    return status


def read(root: Root, path: str, offset: int, length: int, version: str | None = None) -> tuple[Info, bytes]:
    """Read up to `length` bytes from `offset`; includes the digest if that is the whole file.

    `version`: the version that an earlier read returned; a file with another version is refused.
    """
    fd = root.open(relative(path, root.workspace), _READ)
    try:
        about = _regular(fd)
        size, found = about.st_size, f"{about.st_ino}:{about.st_size}:{about.st_mtime_ns}"
        if version not in {None, found}:
            raise OperationRefused("CONFLICT", "the file has changed while it was read")
        data = bytearray()
        while len(data) < length:
            part = os.pread(fd, min(1 << 20, length - len(data)), offset + len(data))
            if not part:
                break
            data += part
    finally:
        os.close(fd)
    size = max(size, offset + len(data)) if data else size  # it may have grown during the read
    whole = offset == 0 and len(data) == size
    return {"offset": offset, "size": size, "version": found, "sha256": digest.of(data) if whole else None}, bytes(data)


def status(root: Root, path: str) -> Info:
    """Describe one entry; symlinks aren't followed."""
    clean = relative(path, root.workspace)
    fd = root.open(clean, os.O_PATH | os.O_NOFOLLOW)
    try:
        return describe(clean, os.fstat(fd))
    finally:
        os.close(fd)


class Write:
    """One file of a batch."""

    def __init__(self, path: str, content: bytes | None, expect: str | None, mode: int | None) -> None:
        self.path = path
        self.content = content
        self.expect = expect
        self.mode = mode


class _StagedWrite:
    def __init__(self, directory: int, name: str, path: str, temporary: str | None) -> None:
        self.directory = directory
        self.name = name
        self.path = path
        self.temporary = temporary


def write(root: Root, writes: list[Write], max_bytes: int) -> list[Info]:
    """Write and delete a batch of files: check and stage everything before the first rename.

    Raises:
        OperationRefused: with `path` set. Nothing was changed, unless the message says so.
    """
    if len(writes) > MAX_BATCH:
        raise OperationRefused("TOO_LARGE", f"more than {MAX_BATCH} files in one batch")
    staged: list[_StagedWrite] = []
    done: list[Info] = []
    path = ""
    try:
        for item in writes:
            path = item.path
            clean = relative(path, root.workspace)
            if any(other.path == clean for other in staged):
                raise OperationRefused("INVALID_PATH", "the batch names the file twice")
            staged.append(_stage(root, item, clean, max_bytes))
        for entry in staged:
            path = entry.path
            done.append(_commit(entry))
    except OSError as error:
        raise _with_path(path, refusal_of(error), done) from error
    except OperationRefused as error:
        raise _with_path(path, error, done) from error
    finally:
        for entry in staged[len(done) :]:
            _discard(entry)
        for entry in staged:
            os.close(entry.directory)
    return done


def _with_path(path: str, refused: OperationRefused, done: list[Info]) -> OperationRefused:
    message = refused.message
    if done:
        message += "; already applied: " + ", ".join(str(info["path"]) for info in done[:10])
    return OperationRefused(refused.error, message, spell(path))


def _stage(root: Root, item: Write, clean: str, max_bytes: int) -> _StagedWrite:
    directory, name = root.open_parent(clean, create=item.content is not None)
    try:
        mode = check(directory, name, item)
        if item.content is None:
            return _StagedWrite(directory, name, clean, None)
        if max_bytes and len(item.content) > max_bytes:
            raise OperationRefused("TOO_LARGE", f"the file is larger than the profile allows ({max_bytes} bytes)")
        temporary = temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            write_all(fd, item.content)
            os.fchmod(fd, mode)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        finally:
            os.close(fd)
    except BaseException:
        os.close(directory)
        raise
    return _StagedWrite(directory, name, clean, temporary)


def check(directory: int, name: str, item: Write) -> int:
    """Check the target's kind and the precondition; returns the new file's mode."""
    try:
        before = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return _check_absent(item)
    if stat.S_ISDIR(before.st_mode):
        raise OperationRefused("IS_A_DIRECTORY", "it is a directory")
    if item.expect == "absent":
        raise OperationRefused("CONFLICT", "the file exists already")
    if stat.S_ISLNK(before.st_mode):
        if item.content is not None or item.expect is not None:
            raise OperationRefused("NOT_A_FILE", "it is a symbolic link; write to the file that it points to")
    elif not stat.S_ISREG(before.st_mode):
        raise OperationRefused("NOT_A_FILE", "it is not a regular file")
    elif item.expect is not None and _digest(directory, name, MAX_CHECKED) != item.expect:
        raise OperationRefused("CONFLICT", "the file has changed since it was read")
    return stat.S_IMODE(before.st_mode) & 0o777 if item.mode is None else item.mode & 0o777


def _check_absent(item: Write) -> int:
    if item.content is None:
        raise OperationRefused("NOT_FOUND", "there is no such file")
    if item.expect not in {None, "absent"}:
        raise OperationRefused("CONFLICT", "the file does not exist any more")
    return 0o644 if item.mode is None else item.mode & 0o777


def _digest(directory: int, name: str, limit: int) -> str:
    """Return the digest of a file of at most `limit` bytes."""
    fd = os.open(name, _READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if _regular(fd).st_size > limit:
            raise OperationRefused("TOO_LARGE", "the file is too large for a precondition")
        return digest.of_file(fd, limit)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """Write all bytes."""
    rest = memoryview(content)
    while rest:
        count = os.write(fd, rest[: 1 << 20])
        if count == 0:
            raise OSError(errno.ENOSPC, "nothing was written")
        rest = rest[count:]


def _commit(entry: _StagedWrite) -> Info:
    if entry.temporary is None:
        about = os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False)
        os.unlink(entry.name, dir_fd=entry.directory)
        return describe(entry.path, about)
    os.rename(entry.temporary, entry.name, src_dir_fd=entry.directory, dst_dir_fd=entry.directory)
    return describe(entry.path, os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False))


def _discard(entry: _StagedWrite) -> None:
    if entry.temporary is not None:
        try:
            os.unlink(entry.temporary, dir_fd=entry.directory)
        except OSError:
            pass  # a tool already removed it or its directory
