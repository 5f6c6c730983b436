"""What calls that move bytes and those that move trees have in common: the exact bytes of a file, and their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codesdk.sandbox.port import FileError, FileRefused
from codesdk.tools.context import ToolContext


def copy_bytes(
    path: str,
    write: Callable[[bytes], object],
    context: ToolContext,
    *,
    size: int,
    offset: int = 0,
    length: int | None = None,
) -> FileRefused | None:
    """Pass a file's bytes to `write`. CONFLICT unless they are `size` bytes: the file has changed while it was read.

    `length`: bytes to read; None: up to the file's end, so that one that grows meanwhile is noticed.
    """
    received = 0

    def take(piece: bytes) -> None:
        nonlocal received
        received += len(piece)
        write(piece)

    done = context.files.download(path, take, offset=offset, length=length)
    if isinstance(done, FileRefused):
        return done
    if received != size:
        return FileRefused(path=path, error=FileError.CONFLICT, message="the file has changed while it was read")
    return None


def raw_structured(path: str, raw: dict[str, Any], *, truncated: bool) -> dict[str, Any]:
    """The structured result of workspace.read for bytes: no text, and what `raw` says of them."""
    return {
        "path": path,
        "content": "",
        "start_line": 0,
        "end_line": 0,
        "total_lines": 0,
        "truncated": truncated,
        "sha256": None,
        "raw": raw,
    }
