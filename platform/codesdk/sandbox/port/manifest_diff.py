"""What has changed in a workspace between two manifests. Pure."""

from __future__ import annotations

from codesdk.domain.decisions import FrozenModel
from codesdk.sandbox.port import Manifest, ManifestEntry


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
