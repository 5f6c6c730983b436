"""What a call has done to a workspace, as data that can be compared: between two manifests. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from codesdk.domain.canonical import content_hash
from codesdk.domain.model import FrozenModel
from codesdk.sandbox.port import FileKind, Manifest, ManifestEntry
from codesdk.sandbox.port.files import diff_manifests
from codesdk.sandbox.runner.workspace.root import OperationRefused, relative


class FileEffect(FrozenModel):
    """One path that is not as it was."""

    path: str
    change: Literal["added", "modified", "deleted"]
    before: ManifestEntry | None = None
    """None where it was not there."""
    after: ManifestEntry | None = None
    """None where it is gone."""

    def facts(self) -> list[Any]:
        """What must be the same where it is done again: the time is not."""
        return [self.path, self.change, _facts(self.after)]


def effects_of(before: Manifest, after: Manifest) -> tuple[FileEffect, ...]:
    """Every change, by path. A rename is a deletion and an addition."""
    old, new = _by_path(before), _by_path(after)
    found = diff_manifests(before, after)
    told = (("added", found.added), ("modified", found.modified), ("deleted", found.deleted))
    every = [
        FileEffect.model_validate({"path": path, "change": change, "before": old.get(path), "after": new.get(path)})
        for change, paths in told
        for path in paths
    ]
    return tuple(sorted(every, key=lambda effect: effect.path))


def effects_hash(effects: Iterable[FileEffect]) -> str:
    """`sha256:` over all of them."""
    return content_hash([effect.facts() for effect in effects])


def state_hash(manifest: Manifest, paths: Iterable[str]) -> str:
    """`sha256:` over what is at these paths and beneath them; what has no content (a socket, a FIFO) is left out."""
    roots = set(paths)
    return content_hash([[entry.path, *_facts(entry)] for entry in _beneath(manifest, roots)])


def affected_paths(named: Iterable[str], effects: Iterable[FileEffect], workspace: str) -> tuple[str, ...]:
    """The paths that a file tool's change is about: those that its input names, and those that it changed elsewhere."""
    roots = set(_within(named, workspace))
    return tuple(sorted(roots | {effect.path for effect in effects if not _is_beneath(effect.path, roots)}))


def write_conditions(manifest: Manifest, paths: Iterable[str]) -> Mapping[str, str]:
    """What each of these files must hold for a write to land: its `sha256:`, or `absent`."""
    known = _by_path(manifest)
    above = {path for path in known if known[path].kind is not FileKind.DIRECTORY}
    found = {}
    for path in paths:
        entry = known.get(path)
        if entry is not None and entry.kind is FileKind.FILE and entry.mark is not None:
            found[path] = entry.mark
        elif entry is None and not _is_beneath(path, above):  # through a link it may be there all the same
            found[path] = "absent"
    return found


def _by_path(manifest: Manifest) -> dict[str, ManifestEntry]:
    return {entry.path: entry for entry in manifest.entries}


def _facts(entry: ManifestEntry | None) -> list[Any]:
    return [] if entry is None else [entry.kind.value, entry.mode, entry.size, entry.mark]


def _beneath(manifest: Manifest, roots: set[str]) -> Iterator[ManifestEntry]:
    for entry in manifest.entries:
        if entry.kind is not FileKind.OTHER and _is_beneath(entry.path, roots):
            yield entry


def _is_beneath(path: str, roots: set[str]) -> bool:
    """At one of them, or below it; `.` is above all."""
    while path not in roots:
        if not path or path == ".":
            return False
        path = posixpath.dirname(path) or "."
    return True


def _within(named: Iterable[str], workspace: str) -> Iterator[str]:
    for name in named:
        try:
            yield posixpath.normpath(relative(name, workspace))
        except OperationRefused:
            continue  # the tool refuses it too, wherever it runs
