"""Files of the sandbox port: operations, watches, fingerprints, manifests and their diff. Re-exported by `port`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from codesdk.domain.model import FrozenModel


class FileKind(StrEnum):
    """Type of a directory entry."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class FileError(StrEnum):
    """Why a file operation was refused. An outcome, not a fault."""

    NOT_FOUND = "NOT_FOUND"
    NOT_A_FILE = "NOT_A_FILE"
    NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
    IS_A_DIRECTORY = "IS_A_DIRECTORY"
    PERMISSION = "PERMISSION_DENIED"
    OUTSIDE = "OUTSIDE_WORKSPACE"
    TOO_LARGE = "TOO_LARGE"
    NO_SPACE = "NO_SPACE"
    CONFLICT = "CONFLICT"
    """A precondition (`if_sha256`) failed: the file changed."""
    INVALID = "INVALID_PATH"
    CANCELLED = "CANCELLED"
    """The call was cancelled when part of the work was done; `message` says how much."""


class FileRefused(FrozenModel):
    """A refused file operation."""

    error: FileError
    path: str
    message: str


class FileInfo(FrozenModel):
    """A directory entry. `path` is relative to the workspace, uses `/` and is spelled by `spell`."""

    path: str
    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime: float = 0.0
    """Seconds since the epoch."""


class FileContent(FrozenModel):
    """Bytes from `offset`. `size` and `sha256` are the whole file's; `sha256` is set only if all of it was read."""

    data: bytes
    offset: int
    size: int
    sha256: str | None = None


class Listing(FrozenModel):
    """Entries below a directory, level by level, each level sorted by path."""

    entries: tuple[FileInfo, ...]
    """Those from `offset` on, up to the limit."""
    offset: int = 0
    total: int
    """Entries that were found, on this page and all others."""
    unscanned: bool = False
    """A directory has more entries than one listing looks at."""

    @property
    def truncated(self) -> bool:
        """Whether there are entries after these, or any that were not looked at."""
        return self.unscanned or self.offset + len(self.entries) < self.total


class FileWrite(FrozenModel):
    """One file of an atomic batch; `content` None deletes it."""

    path: str
    content: bytes | None
    if_sha256: str | None = None
    """Precondition: `sha256:…` of the current content, or `absent` if the file must not exist."""
    mode: int | None = None
    """Permission bits; None keeps them, or sets 0o644 on a new file."""


class ManifestEntry(FrozenModel):
    """An entry with what is needed to detect a change."""

    path: str
    kind: FileKind
    mode: int
    size: int = 0
    mtime_ns: int = 0
    mark: str | None = None
    """`sha256:…` of a file, target of a symlink; None if the file is too large to hash or unreadable."""


class Manifest(FrozenModel):
    """All entries of a workspace, sorted by path; compare two with `diff_manifests`."""

    entries: tuple[ManifestEntry, ...] = ()


class ChangeKind(StrEnum):
    """What happened to a path."""

    CREATED = "created"
    """New, or replaced in one step, as an atomic write does."""
    CHANGED = "changed"
    """Content or mode changed."""
    DELETED = "deleted"
    MOVED = "moved"
    """Moved from `source`, with everything below it."""
    OVERFLOW = "overflow"
    """An unknown number of changes below this path was lost: list it again. The watch continues."""


class Change(FrozenModel):
    """One change. Changes may be repeated, and a burst may be merged; none is lost without an `OVERFLOW`."""

    kind: ChangeKind
    path: str
    source: str | None = None
    """The old path of a move."""


class WatchMethod(StrEnum):
    """How changes are detected."""

    INOTIFY = "inotify"
    """Reported by the kernel at once."""
    POLLING = "polling"
    """Scanned at most once a second: entries created and deleted between two scans are missed."""


class Watch(FrozenModel):
    """A watch on a directory tree."""

    id: str
    path: str
    method: WatchMethod
    """At the start; at the kernel's inotify limit the watch reports an overflow and falls back to polling."""


class Changes(FrozenModel):
    """Changes of a watch, in order."""

    changes: tuple[Change, ...] = ()
    next: int
    """The next `after`; passing it also discards these changes."""
    over: str = ""
    """Why the watch has ended; empty while it is active."""


class NamedPath(FrozenModel):
    """A file name as a call uses it."""

    path: str
    cwd: str = "."
    """Working directory that `path` is relative to."""


class FingerprintKind(StrEnum):
    """What a name resolves to."""

    FILE = "file"
    DIRECTORY = "directory"
    ABSENT = "absent"
    OTHER = "other"
    """A device, a FIFO, an entry of /proc: no content to hash."""
    CLOSED = "closed"
    """Not readable by the tool user."""
    LARGE = "large"
    """Too large to hash, together with smaller files of the call; only the size is compared."""
    UNBINDABLE = "unbindable"
    """Another file for each process (through a link of `/proc`), one that another program holds with a lease, or one that
    can be run but not read. A call that names it starts nothing."""


class FileFingerprint(FrozenModel):
    """What a name resolved to at one moment; equal fingerprints mean that a program would find the same."""

    path: str
    cwd: str = "."
    kind: FingerprintKind
    real: str = ""
    """Resolved path."""
    sha256: str | None = None
    """Digest of a file's content."""
    size: int = 0

    @property
    def name(self) -> NamedPath:
        """The name that was resolved."""
        return NamedPath(path=self.path, cwd=self.cwd)


class Files(Protocol):
    """Files in the workspace, with the tool user's rights. Symlinks can't lead out of it.

    Paths are names, or what `spell` makes of them.
    """

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Read up to `length` bytes from `offset` (None: the profile's `max_read_bytes`)."""
        ...

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """Write a batch. All preconditions are checked before the first rename."""
        ...

    def list(
        self, path: str, *, depth: int = 1, limit: int = 1000, offset: int = 0, glob: str = ""
    ) -> Listing | FileRefused:
        """List entries below `path`, `depth` levels deep; symlinks are listed, not followed.

        `glob`: only entries that match. `*` and `?` match within a name, `**` any directories; a pattern without `/`
        matches the name at any level, another one the path below `path`.
        """
        ...

    def stat(self, path: str) -> FileInfo | FileRefused:
        """Describe one entry; symlinks aren't followed."""
        ...

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """Create a directory and its parents. Idempotent."""
        ...

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace. CONFLICT: the target exists and `replace` is False."""
        ...

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry, with `recursive` a whole tree; returns the number of entries. Links aren't followed."""
        ...

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """Write a file of any size, streamed and replaced atomically."""
        ...

    def download(
        self, path: str, take: Callable[[bytes], object], *, offset: int = 0, length: int | None = None
    ) -> FileInfo | FileRefused:
        """Stream a file of any size to `take`, or up to `length` bytes of it.

        CONFLICT: it changed meanwhile; discard what was received.
        """
        ...

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Watch a directory tree; symlinks aren't followed.

        The watch ends with the sandbox, or after ten minutes without a read. TOO_LARGE: there are 8 watches already, or
        the tree is too large even for polling.
        """
        ...

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """Changes after `after`; waits up to `wait_s` (at most 20) for some. NOT_FOUND: no such watch.

        Up to 4,096 unread changes are kept; beyond that they are replaced by one overflow.
        """
        ...

    def unwatch(self, watch: str) -> bool:
        """End a watch. False: no such watch."""
        ...

    def marks(self, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...] | FileRefused:
        """Fingerprint what each name resolves to for a tool's program, also through links out of the workspace.

        TOO_LARGE: more than 1,024 names.
        """
        ...

    def manifest(self) -> Manifest | FileRefused:
        """All entries with their digests, for a diff. TOO_LARGE: more than 200,000 entries or 128 levels."""
        ...


class WorkspaceDiff(FrozenModel):
    """Changed paths, sorted. A rename is a deletion and an addition."""

    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


def diff_manifests(before: Manifest, after: Manifest) -> WorkspaceDiff:
    """Compare two manifests of one workspace."""
    old = {entry.path: entry for entry in before.entries}
    new = {entry.path: entry for entry in after.entries}
    return WorkspaceDiff(
        added=tuple(sorted(new.keys() - old.keys())),
        modified=tuple(sorted(path for path in new.keys() & old.keys() if _is_modified(old[path], new[path]))),
        deleted=tuple(sorted(old.keys() - new.keys())),
    )


def _is_modified(before: ManifestEntry, after: ManifestEntry) -> bool:
    """Compare content if known. A new mtime alone isn't a change: the same content may have been written again."""
    if (before.kind, before.mode, before.size) != (after.kind, after.mode, after.size):
        return True
    if before.mark is None and after.mark is None:
        return before.kind == "file" and before.mtime_ns != after.mtime_ns
    return before.mark != after.mark
