"""Resource URIs of a session's artifacts and workspace files, and the list of artifacts.

Artifacts are read from their store. Files are in the sandbox, so reading one is a recorded call of `workspace.read`, under
policy like any other.
"""

from __future__ import annotations

import base64
import codecs
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
_OF_CALL = re.compile(r"(?P<call>call_[0-9A-Za-z]+)-(?P<what>.+)", re.ASCII)
_TITLES = {
    **dict.fromkeys(("stdout.txt", "stdout.bin"), "The whole stdout"),
    **dict.fromkeys(("stderr.txt", "stderr.bin"), "The whole stderr"),
    "result.json": "The whole result",
    "input.json": "The whole input",
}
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


def artifact_title(artifact: StoredArtifact) -> str:
    """What an artifact is, for people: its name without the id of its call, and which call it is of."""
    named = _OF_CALL.fullmatch(artifact.name)
    if named is None:
        return artifact.name
    what = _TITLES.get(named["what"], named["what"])
    return f"{what} of {named['call']}"


def artifact_link(artifact: StoredArtifact) -> types.ResourceLink:
    """A link to an artifact."""
    return types.ResourceLink(
        uri=artifact_uri(artifact.id),
        name=artifact.name,
        title=artifact_title(artifact),
        mime_type=artifact.content_type,
        size=artifact.size,
    )


def is_text_type(content_type: str) -> bool:
    """Whether content of this MIME type is text."""
    return _TEXT.match(content_type) is not None


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
                uri=artifact_uri(each.id),
                name=each.name,
                title=artifact_title(each),
                mime_type=each.content_type,
                size=each.size,
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
        if is_text_type(artifact.content_type):
            start, content = self._read_characters(artifact, start, length)
        else:
            content = self._read_bytes(artifact, start, length)
        return types.ReadResourceResult(
            contents=[_content(uri, artifact, content)],
            ttl_ms=0,
            cache_scope="private",
            _meta={"codesdk/part": {"start": start, "length": len(content), "size": artifact.size}},
        )

    def _read_characters(self, artifact: StoredArtifact, start: int, length: int) -> tuple[int, bytes]:
        """A range that splits no character: one at its end is left out, and begins the range that follows."""
        before = min(start, _MAX_CONTINUATION)
        content = self._read_bytes(artifact, start - before, length + before)
        begin = before
        while begin and begin < len(content) and content[begin] in _CONTINUATION:
            begin -= 1
        content = content[begin:]
        if start + length < artifact.size:
            content = content[: len(content) - split_character_bytes(content)]
        return start - before + begin, content

    def _read_bytes(self, artifact: StoredArtifact, start: int, length: int) -> bytes:
        return b"".join(self._artifacts.stream(artifact, start, length)) if length > 0 else b""


_CONTINUATION = range(0x80, 0xC0)
_MAX_CONTINUATION = 3
"""Bytes of a UTF-8 character after its first."""


def split_character_bytes(content: bytes) -> int:
    """Bytes at the end that begin a character of UTF-8 and don't complete it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    return len(decoder.getstate()[0])


def _content(
    uri: str, artifact: StoredArtifact, content: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    if is_text_type(artifact.content_type):
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
