"""Bytes of one file, as HTTP requests move them: out as an artifact of the call, in from one that the input names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileInfo, FileRefused
from codesdk.tools.context import Attachment, ToolContext, file_error_result
from codesdk.tools.raw_bytes import copy_bytes, raw_structured
from codesdk.tools.trees import read_tree, write_tree

PIECE_BYTES = 4 * 1024 * 1024
"""Bytes of an upload that are read at once."""


def read_raw(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """A file, or a part of it, as an artifact."""
    path, asked = given["path"], given["raw"]
    if context.redactor is not None:
        text = f"{path} was not read: policy redacts what is read here, and bytes can't be redacted. Read it as text."
        return ToolResult(text=text, is_error=True, code="NOT_REDACTABLE")
    if "tree" in asked:
        return read_tree(given, context)
    first = context.files.read(path, length=1)
    if isinstance(first, FileRefused):
        return file_error_result(first)
    start = max(0, first.size - asked["last"]) if "last" in asked else min(asked.get("offset", 0), first.size)
    length = min(asked.get("length", first.size), first.size - start)

    def fill(write: Callable[[bytes], object]) -> FileRefused | None:
        return copy_bytes(path, write, context, size=length, offset=start, length=length if asked else None)

    refused = context.keep_stream(Attachment("file.bin", "application/octet-stream", b""), fill)
    if refused is not None:
        return file_error_result(refused)
    raw = {"offset": start, "bytes": length, "size": first.size}
    structured = raw_structured(path, raw, truncated=length < first.size)
    return ToolResult(text=f"Read {length} bytes of {path} ({first.size} bytes).", structured=structured)


def write_upload(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """A file's whole content, from the bytes that were uploaded for it."""
    path, sha256, size = given["path"], given["upload"]["sha256"], given["upload"]["bytes"]
    if "tree" in given["upload"]:
        return write_tree(given, context)
    content = context.transfers.find_upload(sha256)
    if content is None:
        text = f"{path} was not written: the session has no upload with the hash {sha256} any more. Send it again."
        return ToolResult(text=text, is_error=True, code="UPLOAD_GONE")
    before = context.files.stat(path)
    pieces = (content.read(start, PIECE_BYTES) for start in range(0, size, PIECE_BYTES))
    written = context.upload(path, size, pieces, given.get("if_sha256"))
    if isinstance(written, FileRefused):
        return file_error_result(written)
    return written_result(path, size, sha256, created=not isinstance(before, FileInfo))


def written_result(path: str, size: int, sha256: str, *, created: bool) -> ToolResult:
    """What is told of a file that was written."""
    structured = {"path": path, "bytes": size, "created": created, "sha256": sha256}
    verb = "Created" if created else "Wrote"
    return ToolResult(text=f"{verb} {path} ({size} bytes).", structured=structured)
