"""Runs tools, and the examples of manifests, on a sandbox as the worker does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import ToolCallId
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Example, Tool
from codesdk.sandbox.port import FileInfo, FileRefused, FileWrite, Sandbox
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools import ToolContext, run_tool

_NUMBERS = itertools.count(1)


def bench(sandbox: Sandbox, profile: Profile | None = None, **more: Any) -> ToolContext:
    call = ToolCallId(f"call_tool_{next(_NUMBERS)}")
    made = ToolContext(
        sandbox=sandbox,
        profile=profile or Profile(),
        identity=CallIdentity(tool_call_id=call, input_hash="sha256:0"),
        timeout_s=30.0,
        on_output=lambda _chunk: None,
    )
    return replace(made, **more)


def use(tool: Tool, given: dict[str, Any], at: ToolContext) -> ToolResult:
    """Run it, held to its manifest on both sides."""
    tool.check_input(given)
    result = run_tool(tool, given, at)
    if result.structured is not None and not result.is_error:
        tool.check_output(result.structured)
    return result


def run_example(tool: Tool, example: Example, sandbox: Sandbox, profile: Profile | None = None) -> None:
    """In a workspace that holds the example's files and nothing else; what comes out is what the example says."""
    empty(sandbox)
    writes = tuple(FileWrite(path=path, content=text.encode()) for path, text in example.files.items())
    if writes:
        assert not isinstance(sandbox.files.write(writes), FileRefused)
    result = use(tool, example.input, bench(sandbox, profile))
    assert not result.is_error, result
    if example.output is not None:
        assert result.structured is not None
        assert {**result.structured, **dict.fromkeys(example.varies)} == {
            **example.output,
            **dict.fromkeys(example.varies),
        }


def empty(sandbox: Sandbox) -> None:
    """Delete all that the workspace holds."""
    for entry in sandbox.files.list(".").entries:
        assert sandbox.files.delete(entry.path, recursive=True)


def tree(sandbox: Sandbox) -> dict[str, str]:
    """Paths and kinds, for a look at everything at once."""

    def word(entry: FileInfo) -> str:
        return entry.kind.value

    return {entry.path: word(entry) for entry in sandbox.files.list(".", depth=9).entries}
