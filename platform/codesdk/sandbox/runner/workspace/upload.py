"""Chunked uploads: written to a temporary file, then renamed into place."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner.workspace import digest, files
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from codesdk.sandbox.runner.workspace.files import Info

MAX_UPLOADS = 8
KEEP_S = 600.0
"""Idle time after which an upload is dropped; checked when the next one begins."""


class _Upload:
    def __init__(self, directory: int, name: str, path: str, item: files.Write) -> None:
        self.directory = directory
        self.name = name
        self.path = path
        self.item = item
        self.temporary = files.temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(self.temporary, flags, 0o600, dir_fd=directory)
        self.size = 0
        self.hash = digest.sha256()
        self.used = time.monotonic()

    def close(self) -> None:
        os.close(self.fd)
        try:
            os.unlink(self.temporary, dir_fd=self.directory)
        except OSError:
            pass  # renamed into place, or removed by a tool
        os.close(self.directory)


class Uploads:
    """The uploads in progress. Runs on the file thread."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: limit per file; 0 for none."""
        self._max_bytes = max_bytes
        self._uploads: dict[str, _Upload] = {}

    def begin(self, root: Root, item: files.Write) -> str:
        """Check target and precondition; returns the upload's id."""
        for identity, known in list(self._uploads.items()):
            if time.monotonic() - known.used > KEEP_S:
                self.abort(identity)
        if len(self._uploads) >= MAX_UPLOADS:
            raise OperationRefused("TOO_LARGE", f"more than {MAX_UPLOADS} uploads at once")
        clean = relative(item.path, root.workspace)
        directory, name = root.open_parent(clean, create=True)
        try:
            files.check(directory, name, item)
            made = _Upload(directory, name, clean, item)
        except BaseException:
            os.close(directory)
            raise
        identity = os.urandom(8).hex()
        self._uploads[identity] = made
        return identity

    def _get(self, identity: str) -> _Upload:
        if identity not in self._uploads:
            raise OperationRefused("NOT_FOUND", "there is no such upload; it was aborted or timed out")
        return self._uploads[identity]

    def append(self, identity: str, offset: int, data: bytes) -> int:
        """Append a piece; returns the size so far. Detects a repeated piece by its offset."""
        upload = self._get(identity)
        upload.used = time.monotonic()
        if offset + len(data) == upload.size and data:
            return upload.size
        if offset != upload.size:
            raise OperationRefused("CONFLICT", f"a piece at {offset} where {upload.size} was expected")
        if self._max_bytes and offset + len(data) > self._max_bytes:
            self.abort(identity)
            raise OperationRefused("TOO_LARGE", f"the file is larger than the profile allows ({self._max_bytes} bytes)")
        files.write_all(upload.fd, data)
        upload.size += len(data)
        upload.hash.update(data)
        return upload.size

    def commit(self, identity: str, expected: str) -> Info:
        """Rename the upload into place if its digest matches and the precondition still holds."""
        upload = self._get(identity)
        try:
            if digest.text(upload.hash) != expected:
                raise OperationRefused("CONFLICT", "the received bytes differ from those that were sent")
            mode = files.check(upload.directory, upload.name, upload.item)
            os.fchmod(upload.fd, mode)
            os.rename(upload.temporary, upload.name, src_dir_fd=upload.directory, dst_dir_fd=upload.directory)
            about = os.stat(upload.name, dir_fd=upload.directory, follow_symlinks=False)
            return files.describe(upload.path, about)
        finally:
            self.abort(identity)

    def abort(self, identity: str) -> None:
        """Drop the upload and delete its temporary file. Idempotent."""
        upload = self._uploads.pop(identity, None)
        if upload is not None:
            upload.close()
