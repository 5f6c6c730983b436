"""patch.apply: a unified diff, applied whole or not at all."""

from __future__ import annotations

from typing import Any

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tools import ToolResult
from codesdk.sandbox.port import FileError, FileRefused, FileWrite
from codesdk.toolcalls.builtins.bench import Bench, refused
from codesdk.toolcalls.builtins.diff import FilePatch, PatchRejected, apply_hunks, parse

ABSENT = "absent"


def apply(given: dict[str, Any], bench: Bench) -> ToolResult:
    """Check every hunk of every file, then write all files in one batch that only lands on what was read."""
    try:
        patches = parse(given["patch"])
        writes = [_write(patch, bench) for patch in patches]
    except PatchRejected as rejected:
        return ToolResult(text=f"Nothing was changed. {rejected}", is_error=True, code="PATCH_REJECTED")
    done = bench.write(tuple(writes))
    if isinstance(done, FileRefused):
        if done.error is FileError.CONFLICT:
            text = f"Nothing was changed. {done.path} changed while the patch was checked; read it again."
            return ToolResult(text=text, is_error=True, code=done.error.value)
        return refused(done)
    files = [{"path": patch.path, "change": patch.change, "hunks": len(patch.hunks)} for patch in patches]
    summary = "\n".join(f"{file['change']} {file['path']} ({file['hunks']} hunks)" for file in files)
    return ToolResult(text=summary, structured={"files": files})


def _write(patch: FilePatch, bench: Bench) -> FileWrite:
    if patch.change == "added":
        return FileWrite(path=patch.path, content=apply_hunks(patch, "").encode(), if_sha256=ABSENT)
    current = bench.sandbox.files.read(patch.path, length=bench.profile.max_read_bytes)
    if isinstance(current, FileRefused):
        raise PatchRejected(f"{patch.path}: {current.message}")
    try:
        text = current.data.decode()
    except UnicodeDecodeError as error:
        raise PatchRejected(f"{patch.path} is not UTF-8 text.") from error
    if len(current.data) != current.size:
        raise PatchRejected(f"{patch.path} is too large to patch ({current.size} bytes).")
    changed = apply_hunks(patch, text)
    content = None if patch.change == "deleted" else changed.encode()
    return FileWrite(path=patch.path, content=content, if_sha256=bytes_hash(current.data))
