"""workspace.stat, workspace.move, workspace.delete: one entry of the workspace, whatever it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileInfo, FileRefused
from codesdk.tools.context import ToolContext, file_error_result


def stat(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """What a path is; a symbolic link is described as itself."""
    found = context.files.stat(given["path"])
    if isinstance(found, FileRefused):
        return file_error_result(found)
    structured = {
        "path": found.path,
        "kind": found.kind.value,
        "size": found.size,
        "mode": f"{found.mode:04o}",
        "modified": _modified(found),
    }
    words = f"{found.path}: {found.kind.value}, {found.size} bytes, mode {found.mode:04o}, modified {_modified(found)}"
    return ToolResult(text=words, structured=structured)


def _modified(found: FileInfo) -> str:
    """In whole seconds: what sub-seconds a file system keeps differs."""
    return datetime.fromtimestamp(int(found.mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def move(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Rename in one step, with all beneath it; directories on the way to the new name are made."""
    replace = given.get("replace", False)
    target = context.files.stat(given["target"]) if replace else None
    moved = context.files.move(given["path"], given["target"], replace=replace)
    if isinstance(moved, FileRefused):
        return file_error_result(moved)
    replaced = isinstance(target, FileInfo)
    structured = {"path": given["path"], "target": moved.path, "kind": moved.kind.value, "replaced": replaced}
    note = ", in place of what was there" if replaced else ""
    return ToolResult(text=f"Moved {given['path']} to {moved.path}{note}.", structured=structured)


def delete(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Delete a file, a symbolic link (never what it points to), an empty directory, or a tree."""
    found = context.files.stat(given["path"])
    if isinstance(found, FileRefused):
        return file_error_result(found)
    gone = context.files.delete(given["path"], recursive=given.get("recursive", False))
    if isinstance(gone, FileRefused):
        return file_error_result(gone)
    structured = {"path": found.path, "kind": found.kind.value, "entries": gone}
    return ToolResult(text=f"Deleted {found.path} ({gone} entries).", structured=structured)
