"""Resource URIs of a session's artifacts and workspace files, and the list of artifacts.

Artifacts are read from their store. Files are in the sandbox, so reading one is a recorded call of `workspace.read`, under
policy like any other.
"""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import mcp_types as types

from codesdk.artifacts import ArtifactService, ArtifactUnknown, StoredArtifact
from codesdk.domain.ids import IdKind, is_id
from codesdk.domain.subjects import Subject

PAGE_SIZE = 100
"""Artifacts per page."""
MAX_PART_BYTES = 1024 * 1024
"""Bytes of an artifact per read."""
SCHEME = "codesdk"
_TEXT = re.compile(r"text/.*|application/(json|xml|yaml|x-yaml|x-sh|.*\+(json|xml))", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)

ARTIFACT_TEMPLATE = SCHEME + "://artifacts/{id}{?start,length}"
"""URI template of artifacts."""
TEMPLATES = [
    types.ResourceTemplate(
        uri_template=ARTIFACT_TEMPLATE,
        name="artifact",
        title="An artifact of this session",
        description=f"Whole, or `length` bytes from byte `start` on; {MAX_PART_BYTES} bytes at most in one answer.",
    ),
    types.ResourceTemplate(
        uri_template=SCHEME + "://workspace/{+path}{?offset,limit}",
        name="workspace-file",
        title="A text file of the workspace",
        description="Read as the tool workspace_read does it: `limit` lines from line `offset` on.",
    ),
]


class ArtifactPart(NamedTuple):
    """A byte range of an artifact."""

    id: str
    start: int
    length: int


class WorkspaceFile(NamedTuple):
    """Lines of a workspace file, as arguments of `workspace.read`."""

    arguments: dict[str, Any]


def parse_uri(uri: str) -> ArtifactPart | WorkspaceFile | None:
    """The resource that a URI names; None if it is not a valid CodeSDK URI."""
    try:
        parts = urlsplit(uri)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        return None
    if parts.scheme != SCHEME or parts.fragment or not all(_NUMBER.fullmatch(value) for value in asked.values()):
        return None
    numbers = {name: int(value) for name, value in asked.items()}
    path = unquote(parts.path.removeprefix("/"), errors="strict") if _is_utf8(parts.path) else ""
    if parts.netloc == "artifacts" and is_id(path, IdKind.ARTIFACT) and numbers.keys() <= {"start", "length"}:
        return ArtifactPart(path, numbers.get("start", 0), min(numbers.get("length", MAX_PART_BYTES), MAX_PART_BYTES))
    if parts.netloc == "workspace" and path and numbers.keys() <= {"offset", "limit"}:
        return WorkspaceFile({"path": path, **numbers})
    return None


def artifact_uri(artifact: str) -> str:
    """The URI of an artifact."""
    return f"{SCHEME}://artifacts/{artifact}"


def file_uri(path: str) -> str:
    """The URI of a workspace file."""
    return f"{SCHEME}://workspace/{quote(path)}"


class ResourceList:
    """A session's artifacts as resources. Blocks on the database; call it in threads."""

    def __init__(self, artifacts: ArtifactService) -> None:
        self._artifacts = artifacts

    def listing(self, subject: Subject, after: str | None) -> tuple[list[types.Resource], str | None]:
        """One page, newest first, and the next page's cursor."""
        found = self._artifacts.listing(subject.tenant_id, subject.session_id, after, PAGE_SIZE)
        shown = [
            types.Resource(
                uri=artifact_uri(each.id), name=each.name, title=each.name, mime_type=each.content_type, size=each.size
            )
            for each in found
        ]
        return shown, found[-1].id if len(found) == PAGE_SIZE else None

    def read(self, subject: Subject, wanted: ArtifactPart, uri: str) -> types.ReadResourceResult | None:
        """An artifact's bytes, as base64 unless they are text; None if the session has no such artifact."""
        try:
            artifact = self._artifacts.find(subject.tenant_id, wanted.id)
        except ArtifactUnknown:
            return None
        if artifact.session_id != subject.session_id:
            return None
        start = min(wanted.start, artifact.size)
        length = min(wanted.length, artifact.size - start)
        content = b"".join(self._artifacts.stream(artifact, start, length)) if length else b""
        return types.ReadResourceResult(
            contents=[_content(uri, artifact, content)],
            ttl_ms=0,
            cache_scope="private",
            _meta={"codesdk/part": {"start": start, "length": length, "size": artifact.size}},
        )


def _content(
    uri: str, artifact: StoredArtifact, content: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    if _TEXT.match(artifact.content_type):
        try:
            return types.TextResourceContents(uri=uri, mime_type=artifact.content_type, text=content.decode())
        except UnicodeDecodeError:
            pass  # the range splits a character, or it is not text
    encoded = base64.b64encode(content).decode()
    return types.BlobResourceContents(uri=uri, mime_type=artifact.content_type, blob=encoded)


def _is_utf8(path: str) -> bool:
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True
