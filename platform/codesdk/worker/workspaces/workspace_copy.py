"""A temporary snapshot of a workspace on the worker's disk, for a dry run."""

from __future__ import annotations

import logging
import posixpath
import tarfile
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from codesdk.errors import Fault
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.port.faults import SnapshotFailed
from codesdk.toolcalls.previews.change_summary import TEXT_BYTES

_log = logging.getLogger(__name__)

MAX_BYTES = 256 * 1024 * 1024
"""Largest tar in bytes. The session's processes are stopped while it is read, and a larger one takes seconds."""
CHUNK_BYTES = 1024 * 1024
RETRIES = 4
"""Retries of a failed snapshot."""
RETRY_S = 0.5
"""Seconds before each retry."""


class TooLargeToCopy(Fault):
    """The workspace is too large for a preview."""

    code = "TOO_LARGE_TO_COPY"


class SnapshotFile:
    """An unlinked file: it disappears with the process, even after SIGKILL."""

    def __init__(self, place: Path) -> None:
        """`place`: the directory whose disk to use."""
        self._file = tempfile.TemporaryFile(dir=place, prefix="codesdk-preview-")  # noqa: SIM115 (closed in __exit__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, sandbox: Sandbox) -> None:
        """Replace the content with a new snapshot of the sandbox's workspace. Its processes are stopped meanwhile.

        Raises:
            TooLargeToCopy: it exceeds `MAX_BYTES`.
            SnapshotFailed: another snapshot is in progress, or the runner aborted it.
        """
        for _ in range(RETRIES):
            try:
                self._take(sandbox)
            except SnapshotFailed as fault:
                _log.info("a snapshot is taken again: %s", fault)  # another may be in progress
                threading.Event().wait(RETRY_S)
            else:
                return
        self._take(sandbox)

    def _take(self, sandbox: Sandbox) -> None:
        self._file.seek(0)
        self._file.truncate()
        size = 0
        with closing(closable(sandbox.snapshot())) as pieces:
            for piece in pieces:
                size += len(piece)
                if size > MAX_BYTES:
                    raise TooLargeToCopy(
                        f"The workspace has more than the {MAX_BYTES // (1024 * 1024)} MiB that are copied for a preview."
                    )
                self._file.write(piece)
        self._file.flush()

    def pieces(self) -> Iterator[bytes]:
        """The snapshot's tar in chunks."""
        self._file.seek(0)
        while piece := self._file.read(CHUNK_BYTES):
            yield piece

    def contents(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The content of these files, without those larger than a preview shows. Empty if the tar is unreadable."""
        wanted = set(paths)
        if not wanted:
            return {}
        self._file.seek(0)
        found: dict[str, bytes] = {}
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                for member in tar:
                    name = posixpath.normpath(member.name)
                    content = tar.extractfile(member) if name in wanted and (member.isreg() or member.islnk()) else None
                    if content is not None:
                        data = content.read(TEXT_BYTES + 1)
                        found |= {name: data} if len(data) <= TEXT_BYTES else {}
        except (tarfile.TarError, ValueError, KeyError, OverflowError, RecursionError) as error:
            # In a tenant's own image the runner may send anything. The approver is told that the content is missing.
            _log.warning("a snapshot could not be read: %r", error)
        return found


def closable(pieces: Iterator[bytes]) -> Generator[bytes]:
    """Wrap the iterator so that it can be closed: leaving early must resume the sandbox's processes at once."""
    try:
        yield from pieces
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
