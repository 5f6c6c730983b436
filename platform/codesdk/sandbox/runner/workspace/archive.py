"""Unpacks a tar into the workspace in two passes: check everything, then write.

Archives are untrusted. Nothing is written until every entry has been checked: names and links must stay in the
workspace, no entry is written through a link, and only files, directories and links are created.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
import zlib

from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, refusal_of, relative

MAX_ENTRIES = 200_000
MAX_BYTES = 2 * 1024 * 1024 * 1024
"""Maximum unpacked bytes; a few kilobytes of gzip can hold gigabytes of zeros."""


_TIME_DIGITS = 10


def unpack(root: Root, archive: bytes, max_bytes: int = MAX_BYTES, *, readable: bool = False) -> int:
    """Unpack a tar, plain or gzip; returns the number of files written.

    `readable`: give group and others the owner's read and execute permissions, regardless of the archive.

    Raises:
        OperationRefused: ARCHIVE_REFUSED with the entry and the reason, or an error of writing such as NO_SPACE.
    """
    check(archive, root.workspace, max_bytes)
    try:
        return _write(root, archive, readable)
    except OSError as error:
        raise refusal_of(error) from error


def check(archive: bytes, workspace: str, max_bytes: int = MAX_BYTES) -> None:
    """Check every entry.

    Raises:
        OperationRefused: ARCHIVE_REFUSED with the entry and the reason.
    """
    try:
        _check(workspace, archive, max_bytes)
    except (tarfile.TarError, EOFError, ValueError, OSError, zlib.error) as error:
        raise OperationRefused("ARCHIVE_REFUSED", "it is not a readable tar: " + str(error)) from error


def _members(archive: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(archive), mode="r|*")


def _refused(member: tarfile.TarInfo, reason: str) -> OperationRefused:
    return OperationRefused("ARCHIVE_REFUSED", f"entry {member.name[:200]!r} {reason}")


def _check(workspace: str, archive: bytes, max_bytes: int) -> None:
    validator = EntryValidator(workspace, max_bytes)
    with _members(archive) as tar:
        for member in tar:
            validator.validate(member)


class EntryValidator:
    """Checks entries one by one and refuses unsafe ones."""

    def __init__(self, workspace: str, max_bytes: int = MAX_BYTES, *, links_anywhere: bool = False) -> None:
        """`links_anywhere`: accept symbolic links to any target, as tools can make them; none is written through."""
        self._workspace = workspace
        self._max_bytes = max_bytes
        self._links_anywhere = links_anywhere
        self._links: set[str] = set()
        self._total = 0
        self.count = 0

    def validate(self, member: tarfile.TarInfo) -> str:
        """Check an entry and return its path in the workspace.

        Raises:
            OperationRefused: ARCHIVE_REFUSED with the reason.
        """
        self.count += 1
        self._total += max(0, member.size)
        if self.count > MAX_ENTRIES:
            raise OperationRefused("ARCHIVE_REFUSED", f"it has more than {MAX_ENTRIES} entries")
        if self._total > self._max_bytes:
            raise OperationRefused("ARCHIVE_REFUSED", f"it unpacks to more than {self._max_bytes} bytes")
        name = _name(self._workspace, member)
        above = name
        while above:
            above = posixpath.dirname(above)
            if above in self._links:
                raise _refused(member, f"would be written through the symbolic link {above!r}")
        if member.issym():
            if not self._links_anywhere:
                _check_link(member, name)
            self._links.add(name)
        elif member.islnk():
            if _name(self._workspace, member, member.linkname) in self._links:
                raise _refused(member, "is a hard link to a symbolic link")
        elif not (member.isreg() or member.isdir()):
            raise _refused(member, "is neither a file, nor a directory, nor a link")
        return name


def _name(workspace: str, member: tarfile.TarInfo, name: str = "") -> str:
    name = name or member.name
    if name.startswith("/") or ".." in name.split("/"):
        raise _refused(member, "has a name that leaves the workspace")
    try:
        return relative(name, workspace)
    except OperationRefused as refused:
        raise _refused(member, "has a bad name: " + refused.message) from refused


def _check_link(member: tarfile.TarInfo, name: str) -> None:
    target = member.linkname
    if target.startswith("/") or "\0" in target:
        raise _refused(member, "is a symbolic link to an absolute path")
    level = name.count("/")
    for part in target.split("/"):
        level += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if level < 0:
            raise _refused(member, "is a symbolic link that leaves the workspace")


def _write(root: Root, archive: bytes, readable: bool) -> int:
    written = 0
    with _members(archive) as tar:
        for member in tar:
            name = _name(root.workspace, member)
            if name == ".":
                continue
            directory, last = root.open_parent(name, create=True, links=False)
            try:
                written += write_entry(root, tar, member, directory, last, readable)
            finally:
                os.close(directory)
    return written


def entry_times(member: tarfile.TarInfo) -> tuple[int, int]:
    """Return access and modification time in nanoseconds, exact if the archive has them; 1970 for an invalid time."""
    whole, _, rest = member.pax_headers.get("mtime", "").partition(".")
    if len(whole) <= _TIME_DIGITS and (whole + rest).isdecimal() and whole:
        found = int(whole) * 10**9 + int(rest[:9].ljust(9, "0"))
    else:
        found = int(member.mtime * 10**9) if 0 <= member.mtime < 10**_TIME_DIGITS else 0  # excludes infinity and NaN
    return found, found


def write_entry(
    root: Root,
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    directory: int,
    name: str,
    readable: bool = False,
    exact: bool = False,
) -> int:
    """Write one validated entry; returns 1 for a file. `exact`: keep its mode, even one that its owner can't read."""
    if member.isdir():
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
        except FileExistsError:
            pass  # entries may share directories; if it is a file, writing below it fails
        return 0
    try:
        os.unlink(name, dir_fd=directory)  # replaces a file or link; never follows it
    except FileNotFoundError:
        pass
    if member.issym():
        os.symlink(member.linkname, name, dir_fd=directory)
        os.utime(name, ns=entry_times(member), dir_fd=directory, follow_symlinks=False)
        return 0
    if member.islnk():
        source, last = root.open_parent(_name(root.workspace, member, member.linkname), links=False)
        try:
            os.link(last, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(source)
        return 1
    content = tar.extractfile(member)
    mode = member.mode & 0o777 | 0o600
    if readable:
        mode = mode & 0o700 | (mode & 0o500) >> 3 | (mode & 0o500) >> 6
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)
    with os.fdopen(fd, "wb") as target:
        while content is not None:
            part = content.read(1 << 20)
            if not part:
                break
            target.write(part)
        if exact:
            target.flush()
            os.fchmod(target.fileno(), member.mode & 0o777)
    os.utime(name, ns=entry_times(member), dir_fd=directory, follow_symlinks=False)
    return 1
