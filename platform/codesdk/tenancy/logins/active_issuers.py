"""The trusted issuers in force. Reloads the list when its file changes, all or nothing."""

from __future__ import annotations

import logging
from pathlib import Path

from codesdk.documents import FilePoller, fingerprint
from codesdk.tenancy.logins.issuers import Issuer, LoginsInvalid, read_issuers

_log = logging.getLogger(__name__)


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
        self._fingerprint = fingerprint([path])
        self._issuers = read_issuers(path, optional=optional)
        self._problem = ""
        self._missed = False
        self._watch = FilePoller("the list of issuers", self.reload, thread="codesdk-logins")

    def now(self) -> tuple[Issuer, ...]:
        """Return the issuers in force."""
        return self._issuers

    def reload(self) -> None:
        """Check the file once. If it's invalid, the last good list stays in force."""
        stamp = fingerprint([self._path])
        if stamp == self._fingerprint:
            self._missed = False
            return
        if not stamp and not self._missed:
            self._missed = True  # an editor may have removed it for a moment, which must end no streams
            return
        self._missed = False
        try:
            found = read_issuers(self._path, optional=self._optional)
        except LoginsInvalid as error:
            if str(error) != self._problem:
                _log.error("the changed list of issuers is not used, the last valid one stays in force: %s", error)
            self._problem = str(error)
            return
        if fingerprint([self._path]) != stamp:
            return  # it changed while it was read; the next poll reads it again
        self._fingerprint, self._problem = stamp, ""
        if found != self._issuers:
            self._issuers = found
            _log.info("logins are accepted from: %s", ", ".join(each.issuer for each in found) or "no issuer")

    def watch(self) -> None:
        """Poll the file on a background thread until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop polling."""
        self._watch.close()
