"""patch.apply: a unified diff, applied whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tool_results import ToolResult
from codesdk.domain.work_budget import WorkBudget
from codesdk.sandbox.port import FileKind, FileRefused, FileWrite
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.diff_parser import FilePatch, parse_diff
from codesdk.tools.hunks import MAX_WORK, PatchRejected, apply_hunks

ABSENT = "absent"


def apply(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Check every hunk of every file, then write all files in one batch that only lands on what was read."""
    try:
        patches = parse_diff(given["patch"])
        budget = WorkBudget(MAX_WORK)
        writes = [write for patch in patches for write in _file_writes(patch, context, budget)]
    except PatchRejected as rejected:
        return ToolResult(text=f"Nothing was changed. {rejected}", is_error=True, code="PATCH_REJECTED")
    done = context.write(tuple(writes))
    if isinstance(done, FileRefused):
        no = file_error_result(done)
        return no.model_copy(update={"text": f"Nothing was changed. {no.text}."})
    return ToolResult(
        text="\n".join(_summary(patch) for patch in patches),
        structured={"files": [_change_fields(patch) for patch in patches]},
    )


def _change_fields(patch: FilePatch) -> dict[str, Any]:
    source = {"source": patch.source} if patch.source is not None else {}
    return {"path": patch.path, "change": patch.change, "hunks": len(patch.hunks), **source}


def _summary(patch: FilePatch) -> str:
    source = f" from {patch.source}" if patch.source is not None else ""
    return f"{patch.change} {patch.path}{source} ({len(patch.hunks)} hunks)"


def _file_writes(patch: FilePatch, context: ToolContext, budget: WorkBudget) -> Iterator[FileWrite]:
    """What a file's patch writes and deletes; each only on what was read."""
    if patch.change == "added":
        content = apply_hunks(patch.hunks, "", patch.path, budget).encode()
        yield FileWrite(path=patch.path, content=content, if_sha256=ABSENT, mode=patch.mode)
        return
    source = patch.source or patch.path
    current, text = _read_text(source, context)
    if not budget.spend(len(current)):
        raise PatchRejected(f"The files of this diff are too large together (at {source}); send it in parts.")
    changed = apply_hunks(patch.hunks, text, source, budget, deletes=patch.change == "deleted").encode()
    match patch.change:
        case "deleted":
            yield FileWrite(path=source, content=None, if_sha256=bytes_hash(current))
        case "renamed":
            mode = patch.mode if patch.mode is not None else _mode(source, context)
            yield FileWrite(path=patch.path, content=changed, if_sha256=ABSENT, mode=mode)
            yield FileWrite(path=source, content=None, if_sha256=bytes_hash(current))
        case _:
            yield FileWrite(path=source, content=changed, if_sha256=bytes_hash(current), mode=patch.mode)


def _mode(path: str, context: ToolContext) -> int:
    found = context.files.stat(path)
    if isinstance(found, FileRefused):
        raise PatchRejected(f"{path}: {found.message}")
    if found.kind is not FileKind.FILE:
        raise PatchRejected(f"{path} is no regular file; rename it with workspace.move.")
    return found.mode


def _read_text(path: str, context: ToolContext) -> tuple[bytes, str]:
    current = context.files.read(path, length=context.profile.max_read_bytes)
    if isinstance(current, FileRefused):
        raise PatchRejected(f"{path}: {current.message}")
    if len(current.data) != current.size:
        raise PatchRejected(f"{path} is too large to patch ({current.size} bytes).")
    try:
        return current.data, current.data.decode()
    except UnicodeDecodeError as error:
        raise PatchRejected(f"{path} is not UTF-8 text.") from error
