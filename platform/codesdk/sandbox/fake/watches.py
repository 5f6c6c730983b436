"""Watches of a fake workspace, with the runner's bounds."""

from __future__ import annotations

import itertools
import threading

from codesdk.sandbox.port import Change, ChangeKind, Changes, FileError, FileRefused, Watch, WatchMethod
from codesdk.sandbox.runner.workspace.watches import MAX_WAITING, MAX_WATCHES


class _FakeWatch:
    def __init__(self, top: str) -> None:
        self.top = top
        self.changes: list[tuple[int, Change]] = []
        self.last = 0
        self.over = ""

    def add(self, change: Change) -> None:
        if len(self.changes) >= MAX_WAITING:
            self.changes.clear()
            change = Change(kind=ChangeKind.OVERFLOW, path=self.top)
        self.last += 1
        self.changes.append((self.last, change))


class FakeWatches:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._known: dict[str, _FakeWatch] = {}

    def open(self, top: str) -> Watch | FileRefused:
        """Watch an existing directory."""
        with self._changed:
            if len(self._known) >= MAX_WATCHES:
                message = f"more than {MAX_WATCHES} watches at once"
                return FileRefused(error=FileError.TOO_LARGE, path=top, message=message)
            identity = f"watch_{next(self._ids)}"
            self._known[identity] = _FakeWatch(top)
        return Watch(id=identity, path=top, method=WatchMethod.INOTIFY)

    def record(self, kind: ChangeKind, path: str, source: str | None = None) -> None:
        """Something has happened; a move in or out of a watch is a making or a deletion there."""
        with self._changed:
            for watch in self._known.values():
                inside = _is_beneath(path, watch.top)
                if kind is ChangeKind.DELETED and path == watch.top:
                    watch.over = "the watched directory was deleted or moved"
                elif source is None or (inside and _is_beneath(source, watch.top)):
                    if inside:
                        watch.add(Change(kind=kind, path=path, source=source))
                elif inside:
                    watch.add(Change(kind=ChangeKind.CREATED, path=path))
                elif source == watch.top:
                    watch.over = "the watched directory was deleted or moved"
                elif _is_beneath(source, watch.top):
                    watch.add(Change(kind=ChangeKind.DELETED, path=source))
            self._changed.notify_all()

    def read(self, identity: str, after: int, limit: int, wait_s: float) -> Changes | FileRefused:
        """Unread changes; see the port."""
        with self._changed:
            watch = self._known.get(identity)
            if watch is None:
                return FileRefused(error=FileError.NOT_FOUND, path="", message="there is no such watch")
            watch.changes = [change for change in watch.changes if change[0] > after]
            self._changed.wait_for(lambda: watch.changes or watch.over, wait_s)
            part = watch.changes[:limit]
            over = "" if len(part) < len(watch.changes) else watch.over
            return Changes(changes=tuple(change for _, change in part), next=part[-1][0] if part else after, over=over)

    def close(self, identity: str) -> bool:
        """End a watch."""
        with self._changed:
            watch = self._known.pop(identity, None)
            if watch is not None:
                watch.over = "it was ended"
            self._changed.notify_all()
        return watch is not None


def _is_beneath(path: str, top: str) -> bool:
    return top == "." or path.startswith(f"{top}/")
