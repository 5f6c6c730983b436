"""The port's files: what a workspace holds, and what may be done with it. `port` gives these names on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from codesdk.domain.decisions import FrozenModel


class FileKind(StrEnum):
    """What a path is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class FileError(StrEnum):
    """Why a file operation did not happen; an outcome, not a fault."""

    NOT_FOUND = "NOT_FOUND"
    NOT_A_FILE = "NOT_A_FILE"
    NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
    IS_A_DIRECTORY = "IS_A_DIRECTORY"
    PERMISSION = "PERMISSION_DENIED"
    OUTSIDE = "OUTSIDE_WORKSPACE"
    TOO_LARGE = "TOO_LARGE"
    NO_SPACE = "NO_SPACE"
    CONFLICT = "CONFLICT"
    """A precondition (`if_sha256`) did not hold: the file changed in between."""
    INVALID = "INVALID_PATH"
    CANCELLED = "CANCELLED"
    """Its call was, when a part was done; `message` says how much."""


class FileRefused(FrozenModel):
    """A file operation's "no"."""

    error: FileError
    path: str
    message: str


class FileInfo(FrozenModel):
    """One entry. `path` is relative to the workspace, with `/`."""

    path: str
    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime: float = 0.0
    """Seconds since the epoch."""


class FileContent(FrozenModel):
    """Bytes of a file from `offset`; `size` and `sha256` are the whole file's (sha256 only when all of it was read)."""

    data: bytes
    offset: int
    size: int
    sha256: str | None = None


class Listing(FrozenModel):
    """Entries of a directory, sorted by path; `truncated` says that `limit` cut them."""

    entries: tuple[FileInfo, ...]
    truncated: bool = False


class FileWrite(FrozenModel):
    """One file of an atomic batch: content to write, or None to delete."""

    path: str
    content: bytes | None
    if_sha256: str | None = None
    """`sha256:…` that the file must have now; `absent` where it must not exist."""
    mode: int | None = None
    """Permission bits; None keeps the file's, or 0o644 for a new one."""


class ManifestEntry(FrozenModel):
    """One entry, with what tells whether it has changed."""

    path: str
    kind: FileKind
    mode: int
    size: int = 0
    mtime_ns: int = 0
    mark: str | None = None
    """A file's `sha256:…`, a symlink's target; None for a file that is too large to hash or cannot be read."""


class Manifest(FrozenModel):
    """What a workspace held at one moment, sorted by path; two of them are compared by `sandbox.diff`."""

    entries: tuple[ManifestEntry, ...] = ()


class ChangeKind(StrEnum):
    """What happened to a path."""

    CREATED = "created"
    """It is there now: new, or another has taken its place in one step, as by an atomic write."""
    CHANGED = "changed"
    """Its content or its mode."""
    DELETED = "deleted"
    MOVED = "moved"
    """From `source`, with all beneath it."""
    OVERFLOW = "overflow"
    """Changes beneath this path were lost, and how many is unknown: look at it anew. The watch goes on."""


class Change(FrozenModel):
    """One change. It may be told twice, and those of a burst may be told as one; none is left out without `OVERFLOW`."""

    kind: ChangeKind
    path: str
    source: str | None = None
    """Of a move: the path before."""


class WatchMethod(StrEnum):
    """How changes are seen."""

    INOTIFY = "inotify"
    """The kernel tells of them, at once."""
    POLLING = "polling"
    """By looking, once a second or less: what was made and deleted between two looks is not seen."""


class Watch(FrozenModel):
    """A watch that was begun."""

    id: str
    path: str
    method: WatchMethod
    """In the beginning: where the kernel's limit is reached later, an overflow is told, and polling takes over."""


class Changes(FrozenModel):
    """The next changes of a watch, in order."""

    changes: tuple[Change, ...] = ()
    next: int
    """What to give as `after` for those that follow; these are kept until then."""
    over: str = ""
    """Why nothing more follows; empty while it goes on."""


class NamedPath(FrozenModel):
    """A file as a call names it."""

    path: str
    cwd: str = "."
    """Where it starts from: a directory of the workspace."""


class FingerprintKind(StrEnum):
    """What a name leads to."""

    FILE = "file"
    DIRECTORY = "directory"
    ABSENT = "absent"
    OTHER = "other"
    """A device, a FIFO, a part of /proc: nothing with a content."""
    CLOSED = "closed"
    """The tool may not read it."""
    LARGE = "large"
    """Too much to be hashed: it is known by its size alone."""


class FileFingerprint(FrozenModel):
    """What a name led to at one moment; two of them are equal where a program would find the same."""

    path: str
    cwd: str = "."
    kind: FingerprintKind
    real: str = ""
    """Where it led, links followed."""
    sha256: str | None = None
    """Of a file's content."""
    size: int = 0

    @property
    def name(self) -> NamedPath:
        """What was asked for."""
        return NamedPath(path=self.path, cwd=self.cwd)


class Files(Protocol):
    """Files beneath the workspace, with the tool user's rights, whatever symlinks say."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes from `offset`, at most `length` (None: up to the profile's `max_read_bytes`)."""
        ...

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """All or none as far as checks go: every precondition is checked before the first rename."""
        ...

    def list(self, path: str, *, depth: int = 1, limit: int = 1000) -> Listing | FileRefused:
        """Entries beneath `path`, down to `depth` levels; symlinks are shown, never followed."""
        ...

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; a symlink is described as itself."""
        ...

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """A directory, and those above it; no error where it is there."""
        ...

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace; CONFLICT where the target exists and `replace` is not asked for."""
        ...

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry, with all beneath it where `recursive`; how many entries there were. Links are not followed."""
        ...

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """A file of any size, of which neither side holds more than a piece; there whole in one step, or not at all."""
        ...

    def download(self, path: str, take: Callable[[bytes], object], *, offset: int = 0) -> FileInfo | FileRefused:
        """A file of any size, piece by piece; CONFLICT where it changed meanwhile, and what was taken is then void."""
        ...

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Begin to watch a directory and all beneath it; symlinks are not followed.

        It ends with the sandbox, or when nobody has read it for ten minutes. TOO_LARGE: 8 watches there are already, or
        the directory holds too much to watch it in any way.
        """
        ...

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """The changes that follow `after`; waits up to `wait_s` (20 at most) for some. NOT_FOUND: no such watch.

        At most 4,096 wait to be read; where more come, they are replaced by one overflow.
        """
        ...

    def unwatch(self, watch: str) -> bool:
        """End it; False where there is none."""
        ...

    def marks(self, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...] | FileRefused:
        """What each name leads to, as a program of the tool's would find it: links are followed, also out of the workspace.

        TOO_LARGE: more than 1,024 names.
        """
        ...

    def manifest(self) -> Manifest | FileRefused:
        """Every entry with its digest, for a diff. TOO_LARGE beyond 200,000 entries or 128 levels."""
        ...


class WorkspaceDiff(FrozenModel):
    """Paths, sorted. A rename is a deletion and an addition."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing has changed."""
        return not (self.added or self.modified or self.deleted)


def diff_manifests(before: Manifest, after: Manifest) -> WorkspaceDiff:
    """What is new, what is other than it was, and what is gone."""
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    return WorkspaceDiff(
        added=tuple(sorted(new.keys() - old.keys())),
        modified=tuple(sorted(path for path in new.keys() & old.keys() if _is_modified(old[path], new[path]))),
        deleted=tuple(sorted(old.keys() - new.keys())),
    )


def _is_modified(before: ManifestEntry, after: ManifestEntry) -> bool:
    """By content where it is known; the time alone is no change, for a file may be written with what it had."""
    if (before.kind, before.mode, before.size) != (after.kind, after.mode, after.size):
        return True
    if before.mark is None and after.mark is None:
        return before.kind == "file" and before.mtime_ns != after.mtime_ns
    return before.mark != after.mark
