"""Converts a server's answer into a tool result: bounds text, stores files as artifacts, fetches no links. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

import mcp_types as types

from codesdk.domain.canonical import NotCanonical, canonical_json
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools import Attachment
from codesdk.tools.command import Excerpt

MAX_PARTS = 1000
"""Content parts read per answer."""
MAX_FILES = 32
"""Images, sounds and files kept per answer."""
_MEDIA = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")


def to_tool_result(
    answer: types.CallToolResult, tool: Tool, profile: Profile, attach: Callable[[Attachment], None]
) -> ToolResult:
    """The result for the agent. The caller validates structured content against the accepted schema."""
    files: list[Attachment] = []
    whole = "\n".join(_text_parts(answer, files))
    for file in files:
        attach(file)
    excerpt = Excerpt(profile.show_output_bytes)
    excerpt.add(whole.encode("utf-8", "replace"))
    if excerpt.cut:
        attach(Attachment("answer.txt", "text/plain", whole.encode("utf-8", "replace")))
    text = excerpt.text() or "(no output)"
    if answer.is_error:
        return ToolResult(text=text, is_error=True, code="SOURCE_ERROR")
    structured = answer.structured_content
    if structured is None:
        if tool.output_schema is None:
            return ToolResult(text=text)
        text = f"{tool.name} returned no structured result, which its pinned schema requires. Its text: {text}"
        return ToolResult(text=text, is_error=True, code="INVALID_TOOL_OUTPUT")
    return _with_structured(structured, text, tool, profile, attach)


def _with_structured(
    structured: object, text: str, tool: Tool, profile: Profile, attach: Callable[[Attachment], None]
) -> ToolResult:
    if not isinstance(structured, dict):
        return ToolResult(
            text=f"The structured result of {tool.name} is not an object.", is_error=True, code="SOURCE_PROTOCOL"
        )
    try:
        encoded = canonical_json(structured)
    except NotCanonical as fault:
        said = f"The structured result of {tool.name} cannot be stored: {fault.message} Its text: {text}"
        return ToolResult(text=said, is_error=True, code="SOURCE_PROTOCOL")
    if len(encoded) > profile.show_output_bytes:
        attach(Attachment("structured.json", "application/json", encoded))
        said = (
            f"The structured result of {tool.name} has {len(encoded)} bytes; the limit is {profile.show_output_bytes}."
        )
        return ToolResult(text=f"{said} The artifact has all of it.", is_error=True, code="OUTPUT_TOO_LARGE")
    return ToolResult(text=text, structured=structured)


def _text_parts(answer: types.CallToolResult, files: list[Attachment]) -> Iterator[str]:
    for number, part in enumerate(answer.content):
        if number >= MAX_PARTS:
            yield f"[… {len(answer.content) - MAX_PARTS} more parts left out …]"
            return
        match part:
            case types.TextContent():
                yield part.text
            case types.ImageContent() | types.AudioContent():
                yield _attach_media(part.data, part.mime_type, part.type, files)
            case types.ResourceLink():
                yield f"[a link to {part.uri}, which was not fetched]"
            case types.EmbeddedResource(resource=types.TextResourceContents() as inside):
                yield inside.text
            case types.EmbeddedResource(resource=types.BlobResourceContents() as inside):
                yield _attach_media(inside.blob, inside.mime_type or "", "file", files)


def _attach_media(data: str, media: str, kind: str, files: list[Attachment]) -> str:
    if len(files) >= MAX_FILES:
        return f"[{kind} left out: more than {MAX_FILES} in one answer]"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} left out: it is not valid base64]"
    named = _MEDIA.fullmatch(media.lower())
    files.append(Attachment(f"{kind}-{len(files) + 1}", named[0] if named else "application/octet-stream", content))
    return f"[{kind}, {len(content)} bytes, in the artifact]"
