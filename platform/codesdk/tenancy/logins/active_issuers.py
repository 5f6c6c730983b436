"""The trusted issuers in force. Reloads the list when its file changes, all or nothing."""

from __future__ import annotations

import logging
from pathlib import Path

from codesdk.documents import FilePoller
from codesdk.tenancy.logins.issuers import Issuer, LoginsInvalid, read_issuers

_log = logging.getLogger(__name__)

FileFingerprint = tuple[int, int, int] | None


class ActiveIssuers:
    """The issuers in one file. Safe to use from any thread."""

    def __init__(self, path: Path, *, optional: bool) -> None:
        """Load the file. `optional`: a missing file means no issuers.

        Without `optional`, the last list stays in force if the file disappears.

        Raises:
            LoginsInvalid: the file is invalid; nothing of it is used.
        """
        self._path = path
        self._optional = optional
        self._fingerprint = _fingerprint(path)
        self._issuers = read_issuers(path, optional=optional)
        self._problem = ""
        self._missed = False
        self._watch = FilePoller("the list of issuers", self.reload, thread="codesdk-logins")

    def now(self) -> tuple[Issuer, ...]:
        """Return the issuers in force."""
        return self._issuers

    def reload(self) -> None:
        """Check the file once. If it's invalid, the last good list stays in force."""
        fingerprint = _fingerprint(self._path)
        if fingerprint == self._fingerprint:
            self._missed = False
            return
        if fingerprint is None and not self._missed:
            self._missed = True  # an editor may have removed it for a moment, which must end no streams
            return
        self._missed = False
        try:
            found = read_issuers(self._path, optional=self._optional)
        except LoginsInvalid as error:
            if str(error) != self._problem:
                _log.error("the changed list of issuers is not used, the last good one stays: %s", error)
            self._problem = str(error)
            return
        if _fingerprint(self._path) != fingerprint:
            return  # it changed while it was read; the next poll reads it again
        self._fingerprint, self._problem = fingerprint, ""
        if found != self._issuers:
            self._issuers = found
            _log.info("logins of these are taken now: %s", ", ".join(each.issuer for each in found) or "nobody's")

    def watch(self) -> None:
        """Poll the file on a background thread until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop polling."""
        self._watch.close()


def _fingerprint(path: Path) -> FileFingerprint:
    """A cheap fingerprint that changes if the file is written, replaced or removed."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
