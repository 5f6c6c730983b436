"""Compiles pinned tools of a tool source."""

from __future__ import annotations

import re
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import SandboxBounds
from codesdk.domain.tool_results import MAX_TOOL_NAME, TOOL_NAME, wire_name
from codesdk.registry.manifest import SourceCall
from codesdk.registry.pins import OfferedTool
from codesdk.registry.schema_safety import DRAFT, SchemaRefused
from codesdk.registry.schemas import CompiledSchema
from codesdk.registry.source import SourceManifest, running_hash
from codesdk.registry.tool import Tool

_NAME_SEPARATOR = re.compile(r"[^a-z0-9_-]")
_DRAFTS = (
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    DRAFT,
)
"""Dialects in which schemas of plain objects mean the same as in 2020-12. Others are refused if they don't compile."""
_OPEN_ENDED = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if",
     "then", "else", "dependentSchemas"}
)  # fmt: skip


class UnusableTool(Exception):
    """A server's tool that can't be offered. The message has the reason."""


def dotted_name(source: str, name: str) -> str:
    """Return the dotted name of a server's tool: `time`, `getTime` -> `time.gettime`.

    Raises:
        UnusableTool: the result is not a valid name.
    """
    found = f"{source}.{_NAME_SEPARATOR.sub('_', name.lower())}"
    if TOOL_NAME.fullmatch(found) is None or len(found) > MAX_TOOL_NAME:
        raise UnusableTool(
            f"`{name[:100]}` cannot be offered: `{found[:100]}` is not a valid tool name, or is too long."
        )
    return found


def compile_source_tool(manifest: SourceManifest, offered: OfferedTool) -> Tool:
    """Compile a pinned tool. The manifest sets classification, limits and whether the tool is enabled.

    Raises:
        UnusableTool: its name or a schema can't be used.
        NotCanonical: it has no canonical form.
    """
    facts = manifest.settings_for(offered.name)
    name = dotted_name(manifest.name, offered.name)
    given = _convert_schema(offered.input_schema, closed=True)
    answered = _convert_schema(offered.output_schema, closed=False) if offered.output_schema is not None else None
    for key, schema in (("input_schema", given), ("output_schema", answered)):
        if schema is not None and schema.get("type") != "object":
            raise UnusableTool(f"`{offered.name[:100]}`: `{key}` does not describe an object.")
    try:
        compiled = CompiledSchema(given), CompiledSchema(answered) if answered is not None else None
    except SchemaRefused as error:
        where = "/".join(map(str, error.path))
        raise UnusableTool(f"`{offered.name[:100]}`: its schema cannot be used at `/{where}`: {error}") from error
    assert facts.classification is not None  # noqa: S101 (the source's own stands in for it)
    acts = [name, offered.hash, running_hash(manifest), facts.classification.value]
    whole = [manifest.model_dump(mode="json", exclude={"tools"}), facts.model_dump(mode="json"), offered.hash]
    return Tool(
        name=name,
        title=(offered.title or offered.name)[:100],
        description=offered.description or f"`{offered.name}` of {manifest.title}.",
        version=manifest.version,
        classification=facts.classification,
        input_schema=given,
        output_schema=answered,
        schema_hash=content_hash(given),
        runs=SourceCall(source=manifest.name, tool=offered.name),
        timeout_s=facts.timeout_s or manifest.timeout_s,
        enabled=facts.enabled is not False,
        serial=facts.serial is True,
        profile=None,
        sandbox=SandboxBounds(),
        secrets=(*manifest.secrets, *(header.secret for header in manifest.headers)),
        examples=(),
        wire_name=wire_name(name),
        behaviour_hash=content_hash(acts),
        manifest_hash=content_hash(whole),
        _input=compiled[0],
        _output=compiled[1],
    )


def _convert_schema(schema: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    """Convert a schema to 2020-12. `closed` refuses unknown properties, as every tool's input does."""
    ours = dict(schema)
    if str(ours.get("$schema", "")).rstrip("#") in _DRAFTS:
        del ours["$schema"]
    if closed and not _OPEN_ENDED & ours.keys():
        ours["additionalProperties"] = False
        ours.setdefault("properties", {})
    return ours
