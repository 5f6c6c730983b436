"""Snapshot and restore of a workspace, streamed in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from codesdk.sandbox.channel.connection import SendRequest
from codesdk.sandbox.channel.files import LONG_TIMEOUT_S, PIECE_BYTES
from codesdk.sandbox.port.faults import (
    ArchiveRefused,
    RunnerRefused,
    RunnerSilent,
    SandboxGone,
    SnapshotFailed,
    StaleGeneration,
)

_ARCHIVE_ERRORS = ("ARCHIVE_REFUSED", "OUTSIDE_WORKSPACE", "INVALID_PATH")


class RunnerSnapshots:
    """One at a time per sandbox; enforced by the runner."""

    def __init__(self, request: SendRequest) -> None:
        self._request = request

    def snapshot(self) -> Iterator[bytes]:
        """The workspace as a tar; see the port."""
        identity = self._open({"op": "snapshot.open"})
        try:
            is_over = False
            while not is_over:
                answer, data = self._request(
                    {"op": "snapshot.read", "id": identity, "length": PIECE_BYTES}, timeout_s=LONG_TIMEOUT_S
                )
                _check(answer)
                is_over = answer.get("over") is True
                if data:
                    yield data
                elif not is_over:
                    raise RunnerRefused("The runner answered nothing of a snapshot that is not over")
        finally:
            # These mean that it is over already, or will be aborted by the runner.
            with contextlib.suppress(SandboxGone, StaleGeneration, RunnerSilent):
                self._request({"op": "snapshot.close", "id": identity})

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Fill the workspace; see the port."""
        identity = self._open({"op": "restore.open", "replace": replace})
        for whole in pieces:
            for piece in split_pieces(whole):
                answer, _ = self._request({"op": "restore.append", "id": identity}, piece, timeout_s=LONG_TIMEOUT_S)
                if "refused" in answer:
                    break  # the end says the same, and has the runner let go
        answer, _ = self._request({"op": "restore.commit", "id": identity}, timeout_s=LONG_TIMEOUT_S)
        _check(answer)
        entries = answer.get("entries")
        if not isinstance(entries, int):
            raise RunnerRefused(f"The runner did not restore a workspace: {answer}")
        return entries

    def _open(self, header: dict[str, Any]) -> str:
        answer, _ = self._request(header, timeout_s=LONG_TIMEOUT_S)
        _check(answer)
        return str(answer.get("id"))


def split_pieces(whole: bytes) -> Iterator[bytes]:
    """Split into pieces small enough not to hold up a cancel."""
    view = memoryview(whole)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _check(answer: dict[str, Any]) -> None:
    if answer.get("refused") in _ARCHIVE_ERRORS:
        raise ArchiveRefused(str(answer.get("message")))
    if "refused" in answer:
        raise SnapshotFailed(str(answer.get("message")))
    if "error" in answer:
        raise SnapshotFailed(f"the runner has given it up ({answer.get('message')})")
