"""How our tools look to an MCP client."""

from __future__ import annotations

import difflib
from typing import Any

import mcp_types as types

from codesdk.domain.decisions import Classification
from codesdk.domain.subjects import Subject
from codesdk.policy import Bundle, Reachability, may_ever_allow
from codesdk.registry import Registry, Tool, UnknownTool


def list_tools(registry: Registry, bundle: Bundle, subject: Subject) -> list[types.Tool]:
    """The tools that this session may be shown: those that policy could allow for some input."""
    judged = ((tool, may_ever_allow(tool, subject, bundle)) for tool in registry.tools() if not tool.withheld)
    return [to_mcp(tool, possibility) for tool, possibility in judged if possibility is not Reachability.NEVER]


def find_tool(registry: Registry, name: str) -> Tool | None:
    """The tool of that name. One that is not listed is found too: its call is denied, with the reason, on record."""
    try:
        return registry.resolve(name)
    except UnknownTool:
        return None


def closest_name(wire_name: str, tools: list[types.Tool]) -> str | None:
    """The listed name that was probably meant."""
    close = difflib.get_close_matches(wire_name, [tool.name for tool in tools], n=1)
    return close[0] if close else None


def to_mcp(tool: Tool, possibility: Reachability) -> types.Tool:
    """The tool in MCP's words. The hints are for the client's user; what holds is policy and the sandbox."""
    kind = tool.classification
    return types.Tool(
        name=tool.wire_name,
        title=tool.title,
        description=tool.description,
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
    """The tool without the word that it only reads: clients that run such tools unasked then ask about it too."""
    hints = tool.annotations.model_copy(update={"read_only_hint": None}) if tool.annotations else None
    return tool.model_copy(update={"annotations": hints})


def without_combinations(schema: dict[str, Any]) -> dict[str, Any]:
    """The input schema without combinations at its top, which the registry still enforces.

    Model APIs refuse them there, so agents leave such a tool out without a word: Claude Code 2.1.197 does.
    """
    return {key: value for key, value in schema.items() if key not in _COMBINATIONS}


_COMBINATIONS = frozenset(
    {"oneOf", "anyOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired"}
)
