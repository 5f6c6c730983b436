"""The workspace of a fake sandbox: a dictionary that behaves like a directory without symlinks and owners."""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from codesdk.sandbox.fake.watches import FakeWatches
from codesdk.sandbox.port import (
    ChangeKind,
    Changes,
    FileContent,
    FileError,
    FileFingerprint,
    FileInfo,
    FileKind,
    FileRefused,
    FileWrite,
    FingerprintKind,
    Listing,
    Manifest,
    ManifestEntry,
    NamedPath,
    Watch,
)
from codesdk.sandbox.port.faults import ArchiveRefused, SnapshotFailed
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.runner.workspace import archive as archives
from codesdk.sandbox.runner.workspace.listing import matches_glob
from codesdk.sandbox.runner.workspace.names import spell, unspell
from codesdk.sandbox.runner.workspace.root import OperationRefused, relative

_DIRECTORY_MODE, _FILE_MODE = 0o755, 0o644


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


T = TypeVar("T")


class FakeFiles:
    """Files by path; directories are what paths have in front of them."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._files: dict[str, tuple[bytes, int]] = {}
        self._directories: set[str] = {"."}
        self._watches = FakeWatches()

    def put(self, path: str, content: bytes, mode: int = _FILE_MODE) -> None:
        """Write without any check: for the scripts of execs and for arranging a test."""
        self._add_directories(path.rpartition("/")[0])
        kind = ChangeKind.CHANGED if path in self._files else ChangeKind.CREATED
        self._files[path] = (content, mode)
        self._watches.record(kind, path)

    def _add_directories(self, path: str) -> None:
        parts = path.split("/") if path else []
        for count in range(1, len(parts) + 1):
            here = "/".join(parts[:count])
            if here not in self._directories:
                self._directories.add(here)
                self._watches.record(ChangeKind.CREATED, here)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes of a file; see the port."""
        content = self._try(path, lambda: self._files[self._existing_file(path)][0])
        if isinstance(content, FileRefused):
            return content
        limit = self._profile.max_read_bytes
        data = content[offset : offset + min(limit, limit if length is None else length)]
        whole = offset == 0 and len(data) == len(content)
        return FileContent(data=data, offset=offset, size=len(content), sha256=_digest(content) if whole else None)

    def marks(self, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...] | FileRefused:
        """What each name leads to; see the port. There are no links here, and nothing outside."""
        with self._lock:
            return tuple(self._mark(name) for name in names)

    def _mark(self, name: NamedPath) -> FileFingerprint:
        absent = FileFingerprint(path=name.path, cwd=name.cwd, kind=FingerprintKind.ABSENT)
        try:
            clean = self._relative(posixpath.join(name.cwd, name.path))
        except OperationRefused:
            return absent
        real = posixpath.normpath(posixpath.join(self._profile.workspace, clean))
        if clean in self._directories:
            return absent.model_copy(update={"kind": FingerprintKind.DIRECTORY, "real": real})
        if clean not in self._files:
            return absent
        content = self._files[clean][0]
        found = {"kind": FingerprintKind.FILE, "real": real, "sha256": _digest(content), "size": len(content)}
        return absent.model_copy(update=found)

    def _relative(self, path: str) -> str:
        return relative(unspell(path), self._profile.workspace)

    def _existing_file(self, path: str) -> str:
        clean = self._relative(path)
        if clean in self._directories:
            raise OperationRefused("IS_A_DIRECTORY", "it is a directory")
        if clean not in self._files:
            raise OperationRefused("NOT_FOUND", "there is no such file or directory")
        return clean

    def _existing_directory(self, path: str) -> str:
        clean = self._relative(path)
        if clean in self._files:
            raise OperationRefused("NOT_A_DIRECTORY", "a part of the path is not a directory")
        if clean not in self._directories:
            raise OperationRefused("NOT_FOUND", "there is no such file or directory")
        return clean

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """A batch of files, all or none; see the port."""
        with self._lock:
            names: list[str] = []
            for write in writes:
                try:
                    clean = self._check(write, names)
                except OperationRefused as refused:
                    return _refused(write.path, refused)
                names.append(clean)
            return tuple(self._apply(write, clean) for write, clean in zip(writes, names, strict=True))

    def _check(self, write: FileWrite, taken: Sequence[str]) -> str:
        clean = self._relative(write.path)
        if clean in taken:
            raise OperationRefused("INVALID_PATH", "the batch names the file twice")
        if clean in self._directories:
            raise OperationRefused("IS_A_DIRECTORY", "it is a directory")
        above = clean.rpartition("/")[0]
        while above:
            if above in self._files:
                raise OperationRefused("NOT_A_DIRECTORY", "a part of the path is not a directory")
            above = above.rpartition("/")[0]
        limit = self._profile.file_bytes
        if limit and write.content is not None and len(write.content) > limit:
            raise OperationRefused("TOO_LARGE", f"the file is larger than the profile allows ({limit} bytes)")
        self._check_precondition(write, clean)
        return clean

    def _check_precondition(self, write: FileWrite, clean: str) -> None:
        found = self._files.get(clean)
        if found is None:
            if write.content is None:
                raise OperationRefused("NOT_FOUND", "there is no such file")
            if write.if_sha256 not in (None, "absent"):
                raise OperationRefused("CONFLICT", "the file does not exist any more")
        elif write.if_sha256 == "absent":
            raise OperationRefused("CONFLICT", "the file exists already")
        elif write.if_sha256 is not None and write.if_sha256 != _digest(found[0]):
            raise OperationRefused("CONFLICT", "the file has changed since it was read")

    def _apply(self, write: FileWrite, clean: str) -> FileInfo:
        if write.content is None:
            info = self._info(clean)
            del self._files[clean]
            self._watches.record(ChangeKind.DELETED, clean)
            return info
        before = self._files.get(clean)
        kept = before[1] if before else _FILE_MODE
        self.put(clean, write.content, kept if write.mode is None else write.mode & 0o777)
        return self._info(clean)

    def _info(self, clean: str) -> FileInfo:
        if clean in self._directories:
            return FileInfo(path=spell(clean), kind=FileKind.DIRECTORY, mode=_DIRECTORY_MODE)
        content, mode = self._files[clean]
        return FileInfo(path=spell(clean), kind=FileKind.FILE, size=len(content), mode=mode)

    def list(
        self, path: str, *, depth: int = 1, limit: int = 1000, offset: int = 0, glob: str = ""
    ) -> Listing | FileRefused:
        """Entries of a directory; see the port."""
        with self._lock:
            try:
                clean = self._existing_directory(path)
            except OperationRefused as refused:
                return _refused(path, refused)
            prefix = "" if clean == "." else f"{clean}/"
            names = sorted(
                (
                    name
                    for name in (*self._files, *self._directories)
                    if name != "." and name.startswith(prefix) and name.count("/", len(prefix)) < depth
                    if not glob or matches_glob(name[len(prefix) :], glob)
                ),
                key=lambda name: (name.count("/"), name),
            )
            page = tuple(map(self._info, names[offset : offset + limit]))
            return Listing(entries=page, offset=offset, total=len(names))

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; see the port."""
        return self._try(path, lambda: self._info(self._find(path)))

    def _try(self, path: str, work: Callable[[], T]) -> T | FileRefused:
        with self._lock:
            try:
                return work()
            except OperationRefused as refused:
                return _refused(path, refused)

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """A directory, and those above it."""
        return self._try(path, lambda: self._make_directory(path))

    def _make_directory(self, path: str) -> FileInfo:
        clean = self._relative(path)
        if clean in self._files:
            raise OperationRefused("NOT_A_DIRECTORY", "something else has that name")
        if clean != ".":
            self._add_directories(clean)
        return self._info(clean)

    def _find(self, path: str) -> str:
        clean = self._relative(path)
        return clean if clean in self._directories else self._existing_file(path)

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename, with all beneath it."""
        return self._try(path, lambda: self._move(path, target, replace=replace))

    def _move(self, path: str, target: str, *, replace: bool) -> FileInfo:
        clean, wanted = self._relative(path), self._relative(target)
        if wanted == clean or wanted.startswith(f"{clean}/"):
            raise OperationRefused("INVALID_PATH", "a directory cannot be moved into itself")
        clean = self._find(path)
        if (wanted in self._files or wanted in self._directories) and not replace:
            raise OperationRefused("CONFLICT", "the new name already exists")
        self._check_replaceable(clean, wanted)
        self._add_directories(wanted.rpartition("/")[0])
        for name in [name for name in self._files if _is_within(name, clean)]:
            self._files[wanted + name[len(clean) :]] = self._files.pop(name)
        for name in [name for name in self._directories if name != "." and _is_within(name, clean)]:
            self._directories.discard(name)
            self._directories.add(wanted + name[len(clean) :])
        self._watches.record(ChangeKind.MOVED, wanted, clean)
        return self._info(wanted)

    def _check_replaceable(self, clean: str, wanted: str) -> None:
        """As rename(2): a file takes a file's place, a directory that of an empty one."""
        if wanted in self._files and clean in self._directories:
            raise OperationRefused("NOT_A_DIRECTORY", "a part of the path is not a directory")
        if wanted in self._directories:
            if clean in self._files:
                raise OperationRefused("IS_A_DIRECTORY", "it is a directory")
            if any(name != wanted and _is_within(name, wanted) for name in (*self._files, *self._directories)):
                raise OperationRefused("IS_A_DIRECTORY", "it is a directory that is not empty")

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete, with all beneath it."""
        return self._try(path, lambda: self._delete(path, recursive=recursive))

    def _delete(self, path: str, *, recursive: bool) -> int:
        clean = self._find(path)
        if clean == ".":
            raise OperationRefused("IS_A_DIRECTORY", "a directory, not a name in one")
        gone = [name for name in (*self._files, *self._directories) if _is_within(name, clean)]
        if len(gone) > 1 and not recursive:
            raise OperationRefused("IS_A_DIRECTORY", "it is a directory that is not empty")
        for name in gone:
            self._files.pop(name, None)
            self._directories.discard(name)
        for name in sorted(gone, reverse=True):
            self._watches.record(ChangeKind.DELETED, name)
        return len(gone)

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """Written when all of it has come."""
        content = b"".join(pieces)
        done = self.write((FileWrite(path=path, content=content, if_sha256=if_sha256, mode=mode),))
        return done if isinstance(done, FileRefused) else done[0]

    def download(
        self, path: str, take: Callable[[bytes], object], *, offset: int = 0, length: int | None = None
    ) -> FileInfo | FileRefused:
        """All of it, or the part."""
        found = self._try(path, lambda: (self._files[self._existing_file(path)][0], self._info(self._find(path))))
        if isinstance(found, FileRefused):
            return found
        content, info = found
        part = content[offset : None if length is None else offset + length]
        if part:
            take(part)
        return info

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Begin a watch; see the port."""
        found = self._try(path, lambda: self._existing_directory(path))
        return found if isinstance(found, FileRefused) else self._watches.open(found)

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """What has changed; see the port."""
        return self._watches.read(watch, after, limit, wait_s)

    def unwatch(self, watch: str) -> bool:
        """End a watch."""
        return self._watches.close(watch)

    def manifest(self) -> Manifest:
        """Every entry."""
        with self._lock:
            names = sorted({*self._files, *self._directories} - {"."})
            return Manifest(entries=tuple(map(self._manifest_entry, names)))

    def _manifest_entry(self, name: str) -> ManifestEntry:
        info = self._info(name)
        mark = _digest(self._files[name][0]) if name in self._files else None
        return ManifestEntry(path=spell(name), kind=info.kind, mode=info.mode, size=info.size, mark=mark)

    def pack(self) -> bytes:
        """The workspace as a tar."""
        target = io.BytesIO()
        with self._lock, tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted({*self._files, *self._directories} - {"."}):
                entry = tarfile.TarInfo(name)
                content, entry.mode = self._files.get(name, (b"", _DIRECTORY_MODE))
                entry.type = tarfile.REGTYPE if name in self._files else tarfile.DIRTYPE
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        return target.getvalue()

    def restore(self, archive: bytes, *, replace: bool) -> int:
        """Unpack into an empty workspace.

        Raises:
            ArchiveRefused, SnapshotFailed: as the runner would.
        """
        with self._lock:
            if replace:
                self._files.clear()
                self._directories = {"."}
            elif self._files or self._directories != {"."}:
                raise SnapshotFailed("the workspace is not empty")
        self.import_tar(archive)
        with self._lock, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = tar.getmembers()
            self._directories.update(member.name for member in members if member.isdir())
        return len(members)

    def import_tar(self, archive: bytes) -> int:
        """Unpack, after the runner's own checks; links are left out.

        Raises:
            ArchiveRefused: as the runner would.
        """
        try:
            archives.check(archive, self._profile.workspace)
        except OperationRefused as refused:
            raise ArchiveRefused(refused.message) from refused
        written = 0
        with self._lock, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is not None:
                    self.put(relative(member.name, self._profile.workspace), content.read(), member.mode & 0o777)
                    written += 1
        return written


def _is_within(name: str, clean: str) -> bool:
    return name == clean or name.startswith(f"{clean}/")


def _refused(path: str, refused: OperationRefused) -> FileRefused:
    return FileRefused(error=FileError(refused.error), path=path, message=refused.message)
