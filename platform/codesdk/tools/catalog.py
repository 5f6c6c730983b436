"""What stands behind a manifest: a built-in by its name, or the command that its template makes."""

from __future__ import annotations

from typing import Any

from codesdk.domain.tool_results import ToolResult
from codesdk.registry import SourceCall, Template, Tool
from codesdk.tools.command import execute, run_command
from codesdk.tools.context import Builtin, ToolContext
from codesdk.tools.edit import edit
from codesdk.tools.entries import delete, move, stat
from codesdk.tools.fetch import fetch
from codesdk.tools.files import list_directory, read, write
from codesdk.tools.patch import apply
from codesdk.tools.processes import list_processes, send_signal, start
from codesdk.tools.processes import read as read_process
from codesdk.tools.search import search

BUILTINS: dict[str, Builtin] = {
    "workspace.read": read,
    "workspace.write": write,
    "workspace.edit": edit,
    "workspace.list": list_directory,
    "workspace.search": search,
    "workspace.stat": stat,
    "workspace.move": move,
    "workspace.delete": delete,
    "workspace.exec": execute,
    "process.start": start,
    "process.list": list_processes,
    "process.read": read_process,
    "process.signal": send_signal,
    "patch.apply": apply,
    "http.fetch": fetch,
}


def run_tool(tool: Tool, given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Run a tool on input that was checked."""
    assert not isinstance(tool.runs, SourceCall)  # noqa: S101 (`Execution` hands these to `Sources`)
    if not isinstance(tool.runs, Template):
        return BUILTINS[tool.runs.builtin](given, context)
    stdin = _resolve_pointer(given, tool.runs.stdin) if tool.runs.stdin else None
    return run_command(tool.argv(given), context, stdin=str(stdin or "").encode())


def runs_one_exec(tool: Tool) -> bool:
    """Whether the runner knows the call by its exec, so that a new worker can join it instead of running it again."""
    if isinstance(tool.runs, SourceCall):
        return False
    return isinstance(tool.runs, Template) or tool.runs.builtin in ("workspace.exec", "http.fetch", "process.start")


def acts_only_in_last_request(tool: Tool, given: dict[str, Any]) -> bool:
    """Whether only the last thing that it asks of its sandbox may change anything, so that one which was not sent says it all."""
    if isinstance(tool.runs, SourceCall):
        return False
    if isinstance(tool.runs, Template):
        return True
    unpacks = tool.runs.builtin == "workspace.write" and "tree" in given.get("upload", ())
    return not unpacks and not tool.runs.builtin.startswith("process.")


def _resolve_pointer(given: dict[str, Any], pointer: str) -> Any:
    value: Any = given
    for step in pointer.split("/")[1:]:
        value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value
