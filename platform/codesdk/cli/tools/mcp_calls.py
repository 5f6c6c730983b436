"""`codesdk tools call` and `test`: make calls through MCP as an agent does, each in its own session."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult
from rich.text import Text

from codesdk.cli.api_client import ApiClient, connect
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer, sanitize
from codesdk.cli.demo.agent import CALL_META_KEY, connect_mcp, root_cause, text_of
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.create import create_session
from codesdk.cli.tools.loading import registry_of
from codesdk.documents import nearest
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.tool_results import wire_name
from codesdk.errors import ExitCode
from codesdk.registry import Example, Tool, UnknownTool


def run_call(
    name: str,
    given: str,
    workspace: Path | None,
    *,
    mode: PermissionMode,
    profile: str,
    data_dir: Path | None,
    as_json: bool,
) -> int:
    """Make a call and print what an agent would receive; returns 1 if it failed, was denied or waits.

    Raises:
        InputWrong: the input is not a JSON object. UnknownTool: with the nearest name.
        Fault: the daemon's error.
    """
    arguments = read_input(given)
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        result = _call(daemon, name, arguments, workspace, mode=mode, profile=profile, printer=printer)
    details = (result.meta or {}).get(CALL_META_KEY, {})
    if as_json:
        printer.emit({"text": text_of(result), "structured": result.structured_content, "call": details})
    else:
        printer.out.print(Text("\n".join(sanitize(line) for line in text_of(result).split("\n"))), soft_wrap=True)
        printer.progress(f"{details.get('tool_call_id', 'no call')}: {details.get('status', 'refused')}")
    return ExitCode.FAILED if result.is_error else ExitCode.OK


def run_examples(
    names: list[str],
    tools: Path | None,
    tenant: str | None,
    *,
    mode: PermissionMode,
    profile: str,
    data_dir: Path | None,
    as_json: bool,
) -> int:
    """Run every example; returns 1 if a result differs from the expected one.

    Raises:
        UnknownTool: with the nearest name.
        Fault: the daemon's error.
    """
    printer = Printer(as_json=as_json)
    registry = registry_of(tools, tenant)
    chosen = [registry.resolve(name) for name in names] or list(registry.tools())
    results: list[dict[str, Any]] = []
    with connect(load_settings(data_dir)) as daemon:
        for tool in chosen:
            for number, example in enumerate(tool.examples, start=1):
                problem = _run_example(daemon, tool, example, mode=mode, profile=profile, printer=printer)
                results.append({"tool": tool.name, "example": number, "problem": problem})
                if not as_json:
                    printer.out.print(Text(f"{tool.name} {number}: {sanitize(problem) or 'passed'}"), soft_wrap=True)
    failed = [one for one in results if one["problem"]]
    if as_json:
        printer.emit({"examples": results, "failed": len(failed)})
    else:
        printer.out.print(f"{len(results) - len(failed)} of {len(results)} examples pass")
    return ExitCode.FAILED if failed or not results else ExitCode.OK


def _run_example(
    daemon: ApiClient, tool: Tool, example: Example, *, mode: PermissionMode, profile: str, printer: Printer
) -> str:
    """Run an example; return how it failed, or an empty string."""
    with tempfile.TemporaryDirectory(prefix="codesdk-example-") as place:
        for path, text in example.files.items():
            file = Path(place, path)
            if not file.resolve().is_relative_to(Path(place).resolve()):
                return f"the file {path} lies outside the workspace"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        seed = Path(place) if example.files else None
        result = _call(daemon, tool.name, example.input, seed, mode=mode, profile=profile, printer=printer)
    if result.is_error:
        return f"the call did not succeed: {text_of(result)[:500]}"
    if example.output is None:
        return ""
    varies = dict.fromkeys(example.varies)
    given = {**(result.structured_content or {}), **varies}
    wanted = {**example.output, **varies}
    wrong = [
        key
        for key in sorted({*given, *wanted})
        if given.get(key) != wanted.get(key) or (key in given) != (key in wanted)
    ]
    if not wrong:
        return ""
    key = wrong[0]
    return f"`{key}` is {json.dumps(given.get(key))[:300]}, the example says {json.dumps(wanted.get(key))[:300]}"


def _call(
    daemon: ApiClient,
    name: str,
    arguments: dict[str, Any],
    workspace: Path | None,
    *,
    mode: PermissionMode,
    profile: str,
    printer: Printer,
) -> CallToolResult:
    known = {tool[key] for tool in daemon.request("GET", "/v1/tools")["tools"] for key in ("name", "wire_name")}
    if name not in known:
        raise UnknownTool(name, nearest(name, known))
    opened = create_session(
        daemon, workspace, mode=mode, opened_by="codesdk tools", progress=printer.progress, profile=profile
    )
    try:
        return asyncio.run(_call_over_mcp(opened.mcp_url, opened.token, wire_name(name), arguments))
    except BaseExceptionGroup as group:
        raise root_cause(group) from group
    finally:
        daemon.close_session(opened.session.id)


async def _call_over_mcp(url: str, token: str, name: str, arguments: dict[str, Any]) -> CallToolResult:
    async with connect_mcp(url, token) as client:
        return await client.call_tool(name, arguments)


def read_input(given: str) -> dict[str, Any]:
    """Parse a call's input from the command line, or from stdin for `-`.

    Raises:
        InputWrong: it is not a JSON object.
    """
    text = sys.stdin.read() if given == "-" else given
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputWrong(f"The input is not JSON: {error}.", advice="""Write it as '{"path": "a.txt"}'.""") from error
    if not isinstance(found, dict):
        raise InputWrong("The input must be a JSON object.", advice="""Write it as '{"path": "a.txt"}'.""")
    return found
