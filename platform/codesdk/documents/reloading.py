"""Reloads files when they change: fingerprints, a polling thread, and values that are loaded as a whole or not at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from codesdk.documents.document import FileInvalid

POLL_S = 1.0
"""Seconds between polls."""
CLOSE_S = 5.0
"""Seconds that `close` waits for a poll in progress."""
_log = logging.getLogger(__name__)

Fingerprint = tuple[tuple[str, int, int, int], ...]


class _Hashed(Protocol):
    @property
    def hash(self) -> str: ...


ValueT = TypeVar("ValueT", bound=_Hashed)
LayerT = TypeVar("LayerT", bound="ReloadedFiles[Any]")


class FilePoller:
    """Calls `check` every `POLL_S` seconds from `start` until `close`. Exceptions are logged; polling goes on."""

    def __init__(self, what: str, check: Callable[[], None], *, thread: str) -> None:
        """`what`: what is polled, for the log; `thread`: name of the thread."""
        self._what = what
        self._check = check
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling. Safe to call without `start`."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        while not self._closing.wait(POLL_S):
            try:
                self._check()
            except Exception:  # noqa: BLE001 (polling must go on; the last valid state stays in force)
                _log.exception("checking %s for changes failed", self._what)


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Return a cheap fingerprint that changes if a file is written, replaced, added, removed or renamed."""
    found = []
    for path in paths:
        with suppress(OSError):  # removed since the listing: the next poll notices
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


class ReloadedFiles(Generic[ValueT]):
    """What some files hold: the last valid value, and the problem with the current files."""

    def __init__(self, what: str, files: Callable[[], Iterable[Path]], load: Callable[[], ValueT]) -> None:
        """Load the files. `what` they hold, for the log: "tools of acme".

        Raises:
            FileInvalid: a file is invalid.
        """
        self._what = what
        self._files = files
        self._load = load
        self._fingerprint = fingerprint(files())
        self.value = load()
        self.problem: FileInvalid | None = None

    def refresh(self, *, force: bool = False) -> bool:
        """Load the files again if they changed, or with `force`. Returns whether the value changed."""
        stamp = fingerprint(self._files())
        if stamp == self._fingerprint and not force:
            return False
        try:
            value = self._load()
        except FileInvalid as error:
            if str(error) != str(self.problem):
                _log.error("the changed %s are not used, the last valid ones stay in force: %s", self._what, error)
            self.problem = error
            return False
        # Files that changed while being read are read again at the next poll.
        self._fingerprint, self.problem = stamp, None
        before, self.value = self.value, value
        if value.hash != before.hash:
            _log.info("the %s are %s now, they were %s", self._what, value.hash, before.hash)
        return value.hash != before.hash


class ReloadedFolders(Generic[LayerT]):
    """One value for each folder of a directory, such as each tenant's. Folders may come and go."""

    def __init__(
        self, directory: Path | None, what: str, load: Callable[[Path], LayerT], fault: type[FileInvalid]
    ) -> None:
        """Load all folders; there are none without a `directory`. `what` they hold, for messages: "tenants' tools".

        Raises:
            FileInvalid: a file is invalid, or the directory can't be read (as `fault`).
        """
        self._directory = directory
        self._what = what
        self._load = load
        self._fault = fault
        self._unreadable: FileInvalid | None = None
        self.layers: dict[str, LayerT | FileInvalid] = {path.name: load(path) for path in self._folders()}
        """By folder name. A fault stands for a folder that has no valid value."""

    def valid(self) -> dict[str, LayerT]:
        """Return the values, without folders that have none."""
        return {name: layer for name, layer in list(self.layers.items()) if not isinstance(layer, FileInvalid)}

    def problems(self, everything: str) -> dict[str, FileInvalid]:
        """Return the problems by folder name, and one that concerns all folders under the name `everything`."""
        found = {everything: self._unreadable} if self._unreadable else {}
        for name, layer in list(self.layers.items()):
            problem = layer if isinstance(layer, FileInvalid) else layer.problem
            if problem is not None:
                found[name] = problem
        return found

    def refresh(self, *, force: bool = False) -> None:
        """Refresh every folder; add new ones and drop removed ones.

        With `force` everything is loaded again, and a folder that is invalid now keeps no earlier value. If the
        directory is gone or unreadable, every folder keeps its last valid value.
        """
        try:
            folders = self._folders()
        except FileInvalid as error:
            if str(error) != str(self._unreadable):
                _log.error("all %s stay as they are: %s", self._what, error)
            self._unreadable = error
            return
        self._unreadable = None
        for gone in set(self.layers) - {path.name for path in folders}:
            _log.warning("%s is no longer among the %s: its directory was removed", gone, self._what)
            del self.layers[gone]
        for path in folders:
            layer = self.layers.get(path.name)
            if layer is None or isinstance(layer, FileInvalid):
                self._add(path, layer)
            else:
                layer.refresh(force=force)
                if force and layer.problem is not None:
                    self.layers[path.name] = layer.problem

    def _add(self, path: Path, before: FileInvalid | None) -> None:
        try:
            self.layers[path.name] = self._load(path)
        except FileInvalid as error:
            if str(error) != str(before):
                _log.error("the %s of %s are not used: %s", self._what, path.name, error)
            self.layers[path.name] = error

    def _folders(self) -> list[Path]:
        try:
            found = list(self._directory.iterdir()) if self._directory is not None else []
        except OSError as error:
            message = f"The directory of the {self._what} cannot be read: {error.strerror or error}."
            raise self._fault(str(self._directory), 1, 1, message) from error
        return [path for path in found if path.is_dir() and not path.name.startswith(".")]
