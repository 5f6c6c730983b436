"""patch.apply: a unified diff or a patch in the apply-patch format, applied whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tool_results import ToolResult
from codesdk.domain.work_budget import WorkBudget
from codesdk.sandbox.port import FileInfo, FileKind, FileRefused, FileWrite
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.diff_parser import FilePatch, parse_readings
from codesdk.tools.hunks import MAX_WORK, HunkMisplaced, PatchRejected, apply_hunks

ABSENT = "absent"


def apply(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Check every hunk of every file, then write all files in one batch that only lands on what was read."""
    try:
        patches, writes = _plan(parse_readings(given["patch"]), context)
    except PatchRejected as rejected:
        return ToolResult(text=f"Nothing was changed. {rejected}", is_error=True, code="PATCH_REJECTED")
    done = context.write(writes)
    if isinstance(done, FileRefused):
        no = file_error_result(done)
        return no.model_copy(update={"text": f"Nothing was changed. {no.text}."})
    return ToolResult(
        text="\n".join(_summary(patch) for patch in patches),
        structured={"files": [_change_fields(patch) for patch in patches]},
    )


def _plan(
    readings: Iterable[tuple[FilePatch, ...]], context: ToolContext
) -> tuple[list[FilePatch], tuple[FileWrite, ...]]:
    """The first reading that fits, and what it writes. If none does, the last says why: wrong counts are more common."""
    budget = WorkBudget(MAX_WORK)
    refusal: PatchRejected | None = None
    for reading in readings:
        try:
            patches = [_resolved(patch, context) for patch in reading]
            writes = tuple(write for patch in patches for write in _file_writes(patch, context, budget))
        except PatchRejected as rejected:
            refusal = rejected
        else:
            return patches, writes
    assert refusal is not None  # noqa: S101 (there is always a reading)
    if isinstance(refusal, HunkMisplaced):
        raise PatchRejected(refusal.explain(context.clean)) from refusal
    raise refusal


def _change_fields(patch: FilePatch) -> dict[str, Any]:
    source = {"source": patch.source} if patch.source is not None else {}
    return {"path": patch.path, "change": patch.change, "hunks": len(patch.hunks), **source}


def _summary(patch: FilePatch) -> str:
    source = f" from {patch.source}" if patch.source is not None else ""
    return f"{patch.change} {patch.path}{source} ({len(patch.hunks)} hunks)"


def _resolved(patch: FilePatch, context: ToolContext) -> FilePatch:
    """The patch with the one path and change that it can mean, where it leaves two."""
    if patch.adds_if_absent and not isinstance(context.files.stat(patch.path), FileInfo):
        return patch.model_copy(update={"change": "added"})
    if patch.unprefixed is None:
        return patch
    literal, bare = (isinstance(context.files.stat(path), FileInfo) for path in (patch.path, patch.unprefixed))
    if literal and bare:
        raise PatchRejected(
            f"Both names are {patch.path}, and {patch.unprefixed} exists too: write a/ and b/ before it."
        )
    return patch if literal or not bare else patch.model_copy(update={"path": patch.unprefixed})


def _file_writes(patch: FilePatch, context: ToolContext, budget: WorkBudget) -> tuple[FileWrite, ...]:
    """What a file's patch writes and deletes; each only on what was read."""
    if patch.change == "added":
        content = apply_hunks(patch.hunks, "", patch.path, budget).encode()
        return (FileWrite(path=patch.path, content=content, if_sha256=ABSENT, mode=patch.mode),)
    source = patch.source or patch.path
    current = _read(source, context)
    if not budget.spend(len(current)):
        raise PatchRejected(f"The files of this patch are too large together (at {source}); send it in parts.")
    marked = bytes_hash(current)
    deletes = patch.change == "deleted"
    changed = current
    if patch.discards:
        changed = apply_hunks(patch.hunks, "", source, budget).encode()
    elif patch.hunks or deletes:
        changed = apply_hunks(patch.hunks, _decode(source, current), source, budget, deletes=deletes).encode()
    match patch.change:
        case "deleted":
            return (FileWrite(path=source, content=None, if_sha256=marked),)
        case "renamed":
            mode = patch.mode if patch.mode is not None else _mode(source, context)
            return (
                FileWrite(path=patch.path, content=changed, if_sha256=ABSENT, mode=mode),
                FileWrite(path=source, content=None, if_sha256=marked),
            )
        case _ if changed == current and patch.mode is None:
            raise PatchRejected(f"{source}: the patch changes nothing.")
        case _:
            return (FileWrite(path=source, content=changed, if_sha256=marked, mode=patch.mode),)


def _mode(path: str, context: ToolContext) -> int:
    found = context.files.stat(path)
    if isinstance(found, FileRefused):
        raise PatchRejected(f"{path}: {found.message}")
    if found.kind is not FileKind.FILE:
        raise PatchRejected(f"{path} is no regular file; rename it with workspace.move.")
    return found.mode


def _read(path: str, context: ToolContext) -> bytes:
    current = context.files.read(path, length=context.profile.max_read_bytes)
    if isinstance(current, FileRefused):
        raise PatchRejected(f"{path}: {current.message}")
    if len(current.data) != current.size:
        raise PatchRejected(f"{path} is too large to patch ({current.size} bytes).")
    return current.data


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PatchRejected(f"{path} is not UTF-8 text.") from error
