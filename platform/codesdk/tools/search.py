"""workspace.search: ripgrep in the sandbox, as the tool user; a hostile pattern can only burn its own limits."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.port import Chunk, ExitKind, FileKind, FileRefused
from codesdk.tools.context import ToolContext, file_error_result

DEFAULT_RESULTS = 200
LINE_BYTES = 500
"""Longest line shown: minified files have lines of megabytes."""


def search(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Lines that match a regular expression (Rust syntax), in files that git does not ignore."""
    place = given.get("path", ".")
    # rg follows whatever it is given by name, and every path that the container has; what is below it follows no link.
    there = context.files.stat(place)
    if isinstance(there, FileRefused):
        return file_error_result(there)
    if there.kind is FileKind.SYMLINK:
        text = f"{place} is a symbolic link; search what it points to."
        return ToolResult(text=text, is_error=True, code="SYMLINK")
    most = given.get("max_results", DEFAULT_RESULTS)
    pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

    def collect(chunk: Chunk) -> None:
        pieces[chunk.stream].append(chunk.data)

    result = context.run(_argv(given, place, whole_lines=context.redactor is not None), collect, egress=DENY_ALL)
    if result.kind is ExitKind.SPAWN_FAILED:
        return ToolResult(
            text="This sandbox image has no ripgrep. Use an image with `rg`, or search with a command.",
            is_error=True,
            code="NO_RIPGREP",
        )
    if result.kind is not ExitKind.EXITED or result.exit_code not in (0, 1, 2):
        return ToolResult(text=f"The search did not end well: {result.kind}.", is_error=True, code=result.kind.upper())
    matches = _matches(b"".join(pieces["stdout"]), most + 1, context.clean)
    if result.exit_code == 2 and not matches:  # noqa: PLR2004 (rg(1): 2 is an error, 1 no match)
        message = b"".join(pieces["stderr"]).decode("utf-8", "replace").strip()
        return ToolResult(text=message or "The search failed.", is_error=True, code="SEARCH_FAILED")
    truncated = len(matches) > most
    matches = matches[:most]
    lines = [f"{match['path']}:{match['line']}:{match['text']}" for match in matches]
    if truncated:
        lines.append(f"[cut after {most} matches; narrow the pattern or the path]")
    return ToolResult(text="\n".join(lines) or "No match.", structured={"matches": matches, "truncated": truncated})


def _argv(given: dict[str, Any], place: str, *, whole_lines: bool) -> tuple[str, ...]:
    """`whole_lines`: what is redacted must not be cut in half before."""
    argv = ["rg", "--json", "--no-config", "--sort=path"]
    if not whole_lines:
        argv += [f"--max-columns={LINE_BYTES}", "--max-columns-preview"]
    if given.get("ignore_case"):
        argv.append("--ignore-case")
    if given.get("glob"):
        argv.append(f"--glob={given['glob']}")
    return (*argv, "--regexp", given["pattern"], "--", place)


def _matches(output: bytes, most: int, clean: Callable[[str], str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        if len(found) >= most:
            break
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the last record of an output that passed its limit is cut in half
        if record.get("type") == "match":
            data = record["data"]
            found.append(
                {
                    "path": _decode_field(data["path"]).removeprefix("./"),
                    "line": data["line_number"],
                    "text": clean(_decode_field(data["lines"])).rstrip("\n")[:LINE_BYTES],
                }
            )
    return found


def _decode_field(field: dict[str, str]) -> str:
    # rg gives base64 where a path or a line is not UTF-8.
    return field["text"] if "text" in field else base64.b64decode(field["bytes"]).decode("utf-8", "replace")
