"""Snapshot and restore of a workspace, streamed in pieces. One at a time per sandbox; enforced by the runner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from codesdk.sandbox.channel.connection import Header, SendRequest
from codesdk.sandbox.channel.files import LONG_TIMEOUT_S, PIECE_BYTES, split_pieces
from codesdk.sandbox.port.faults import (
    ArchiveRefused,
    RunnerRefused,
    RunnerSilent,
    SandboxGone,
    SnapshotFailed,
    StaleGeneration,
)

_ARCHIVE_ERRORS = ("ARCHIVE_REFUSED", "OUTSIDE_WORKSPACE", "INVALID_PATH")


def take_snapshot(request: SendRequest) -> Iterator[bytes]:
    """The workspace as a tar; see the port."""
    identity = _open(request, {"op": "snapshot.open"})
    try:
        is_over = False
        while not is_over:
            header = {"op": "snapshot.read", "id": identity, "length": PIECE_BYTES}
            answer, data = request(header, timeout_s=LONG_TIMEOUT_S)
            _check(answer)
            is_over = answer.get("over") is True
            if data:
                yield data
            elif not is_over:
                raise RunnerRefused("The runner sent an empty piece of an unfinished snapshot")
    finally:
        # These mean that it is over already, or will be aborted by the runner.
        with contextlib.suppress(SandboxGone, StaleGeneration, RunnerSilent):
            request({"op": "snapshot.close", "id": identity})


def restore_snapshot(request: SendRequest, pieces: Iterable[bytes], *, replace: bool) -> int:
    """Fill the workspace; see the port."""
    identity = _open(request, {"op": "restore.open", "replace": replace})
    for whole in pieces:
        for piece in split_pieces(whole):
            answer, _ = request({"op": "restore.append", "id": identity}, piece, timeout_s=LONG_TIMEOUT_S)
            if "refused" in answer:
                break  # the commit returns the same refusal, and makes the runner end the restore
    answer, _ = request({"op": "restore.commit", "id": identity}, timeout_s=LONG_TIMEOUT_S)
    _check(answer)
    entries = answer.get("entries")
    if not isinstance(entries, int):
        raise RunnerRefused(f"The runner did not restore a workspace: {answer}")
    return entries


def _open(request: SendRequest, header: Header) -> str:
    answer, _ = request(header, timeout_s=LONG_TIMEOUT_S)
    _check(answer)
    return str(answer.get("id"))


def _check(answer: Header) -> None:
    if answer.get("refused") in _ARCHIVE_ERRORS:
        raise ArchiveRefused(str(answer.get("message")))
    if "refused" in answer:
        raise SnapshotFailed(str(answer.get("message")))
    if "error" in answer:
        raise SnapshotFailed(f"the runner aborted it ({answer.get('message')})")
