"""Tools as MCP clients see them, and the host's own tool `collect_result`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from codesdk.domain.decisions import Classification
from codesdk.domain.ids import IdKind, ToolCallId, is_id
from codesdk.domain.subjects import Subject
from codesdk.mcphost.tool_calls.answers import COLLECT_TOOL, to_wire_names
from codesdk.policy import Bundle, Reachability, may_ever_allow
from codesdk.registry import Registry, Tool

COLLECT_RESULT = types.Tool(
    name=COLLECT_TOOL,
    title="Collect a result",
    description=(
        "Gives the result of a tool call of this session that was answered with APPROVAL_PENDING, CALL_RUNNING or "
        "RESULT_READY. It waits a while if that call has not ended, and runs nothing itself."
    ),
    input_schema={
        "type": "object",
        "properties": {"call_id": {"type": "string", "description": "The call's id, as its answer named it."}},
        "required": ["call_id"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(
        title="Collect a result",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    ),
)


def list_tools(registry: Registry, bundle: Bundle, subject: Subject) -> list[types.Tool]:
    """The tools shown to this session: those that policy could allow for some input."""
    names = {tool.name: tool.wire_name for tool in registry.tools()}
    judged = ((tool, may_ever_allow(tool, subject, bundle)) for tool in registry.tools() if not tool.withheld)
    return [to_mcp(tool, possibility, names) for tool, possibility in judged if possibility is not Reachability.NEVER]


def call_id_argument(arguments: dict[str, object]) -> ToolCallId | None:
    """The argument of `collect_result`; None if it isn't a call id."""
    given = arguments.get("call_id")
    return ToolCallId(given) if isinstance(given, str) and is_id(given, IdKind.CALL) else None


def closest_name(wire_name: str, tools: list[types.Tool]) -> str | None:
    """The listed name closest to this one, if any is close."""
    close = difflib.get_close_matches(wire_name, [tool.name for tool in tools], n=1)
    return close[0] if close else None


def to_mcp(tool: Tool, possibility: Reachability, names: Mapping[str, str]) -> types.Tool:
    """The tool as an MCP tool; `names`: of all tools, as clients know them. Its hints inform the client's user; policy and the sandbox enforce."""
    kind = tool.classification
    return types.Tool(
        name=tool.wire_name,
        title=tool.title,
        description=to_wire_names(tool.description, names),
        input_schema=without_combinations(tool.input_schema),
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=kind is Classification.READ_ONLY,
            destructive_hint=kind is Classification.DANGEROUS,
            open_world_hint=kind is Classification.NETWORK,
        ),
        _meta={
            "codesdk/tool": tool.name,
            "codesdk/classification": kind.value,
            "codesdk/schema-hash": tool.schema_hash,
            "codesdk/allowed": possibility.value,  # `always`, or `depends` on the input or on a person
        },
    )


def without_read_only_hint(tool: types.Tool) -> types.Tool:
    """The tool without its read-only hint, so that clients that run such tools unasked ask about it too."""
    hints = tool.annotations.model_copy(update={"read_only_hint": None}) if tool.annotations else None
    return tool.model_copy(update={"annotations": hints})


def without_output_schema(tool: types.Tool) -> types.Tool:
    """The tool for a client that gets text results: an output schema would promise it a structured one."""
    return tool.model_copy(update={"output_schema": None})


def without_combinations(schema: dict[str, Any]) -> dict[str, Any]:
    """The input schema without top-level combinations, which the registry still enforces.

    Model APIs reject them there, and agents such as Claude Code 2.1.197 then drop the tool silently.
    """
    return {key: value for key, value in schema.items() if key not in _COMBINATIONS}


_COMBINATIONS = frozenset(
    {"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired"}
)
