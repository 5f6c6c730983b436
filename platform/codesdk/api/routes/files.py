"""Files of a session's workspace over HTTP. Each request is a call of a file tool, under the same rules as an agent's."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, NamedTuple

from anyio import to_thread
from fastapi import Depends, Query, Request, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from codesdk.api.access import FILES, Caller, ServicesDep, guarded_router, slots_of
from codesdk.api.call_answers import CALL_HEADER, PendingCall, answer, failed
from codesdk.api.download import (
    ByteRange,
    Download,
    Unsatisfiable,
    attachment_headers,
    parse_range,
    requested_part,
)
from codesdk.api.problems import InvalidRequest
from codesdk.api.routes.artifacts import matches_etag, receive_body
from codesdk.api.session_calls import idempotency_key, own_subject, run_call
from codesdk.artifacts import StoredArtifact
from codesdk.artifacts.spool import Spool
from codesdk.bootstrap import Services
from codesdk.domain.ids import ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import ToolResult
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.records.call_record import Finished, Outcome

MAX_TEXT_BYTES = 4 * 1024 * 1024
"""Bytes up to which a text is the `content` of workspace.write, as an agent sends it, so that rules see it."""
LEFT_OUT_HEADER = "CodeSDK-Left-Out"
"""How many paths a tree lacks that its call was not let read."""
router = guarded_router()
PathQuery = Annotated[str, Query(min_length=1, max_length=4096)]
"""A path in the workspace, relative to its root, spelled as listings spell it."""


class WrittenFile(FrozenModel):
    """A file that was written."""

    tool_call_id: ToolCallId
    path: str
    bytes: int
    created: bool
    sha256: str


class WrittenTree(FrozenModel):
    """An archive that was unpacked. `bytes`: of its files."""

    tool_call_id: ToolCallId
    path: str
    bytes: int
    entries: int
    sha256: str
    """Of the archive."""


class FileStatus(FrozenModel):
    """What a path is; a symbolic link is described as itself."""

    tool_call_id: ToolCallId
    path: str
    kind: str
    size: int
    mode: str
    modified: str


class FileEntry(FrozenModel):
    """An entry of a listing."""

    path: str
    kind: str
    size: int


class FileList(FrozenModel):
    """A page of the entries below a directory. `next`: the parameters of the next page, if there is one."""

    tool_call_id: ToolCallId
    path: str
    entries: list[FileEntry]
    total: int
    truncated: bool
    next: dict[str, Any] | None = None


class Move(FrozenModel):
    """What to rename to what."""

    source: str = Field(min_length=1, max_length=4096)
    target: str = Field(min_length=1, max_length=4096)
    replace: bool = False
    """Replace what has that name."""


class MovedFile(FrozenModel):
    """What was renamed."""

    tool_call_id: ToolCallId
    path: str
    target: str
    kind: str
    replaced: bool


class DeletedFile(FrozenModel):
    """What was deleted, and how many entries that were."""

    tool_call_id: ToolCallId
    path: str
    kind: str
    entries: int


_BYTES = "application/octet-stream"
_TAR = "application/x-tar"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PENDING: dict[int | str, dict[str, Any]] = {202: {"model": PendingCall}}


def _bytes_in(content_type: str) -> dict[str, Any]:
    """The schema of a body that is received as it is."""
    return {"requestBody": {"required": True, "content": {content_type: _BINARY}}}


def _bytes_out(content_type: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": "The bytes", "content": {content_type: _BINARY}}, **_PENDING}


class SessionFiles:
    """The files of the session in the request's path, for its caller."""

    def __init__(self, request: Request, session_id: str, caller: Principal, services: Services) -> None:
        self.request = request
        self.artifacts = services.artifacts
        self._session_id = session_id
        self._caller = caller
        self._services = services

    async def subject(self) -> Subject:
        """The caller in the session.

        Raises:
            SessionUnknown: as `own_subject`.
        """
        return await to_thread.run_sync(own_subject, self._services, self._caller, self._session_id)

    async def call(self, tool: str, arguments: dict[str, Any], *, upload: StoredArtifact | None = None) -> Outcome:
        """Make a call of that tool, and wait for it."""
        key = idempotency_key(self.request)
        async with slots_of(self.request):
            subject = await self.subject()
        return await run_call(
            self._services, slots_of(self.request), subject, tool, arguments, key=key, transfer=True, upload=upload
        )

    async def content_of(self, result: ToolResult) -> StoredArtifact | None:
        """The bytes that a call read; None if they were not kept."""
        if not result.artifacts:
            return None
        async with slots_of(self.request):
            return await to_thread.run_sync(self.artifacts.find, self._caller.tenant_id, result.artifacts[0])


async def _session_files(request: Request, session_id: str, caller: Caller, services: ServicesDep) -> SessionFiles:
    return SessionFiles(request, session_id, caller, services)


FilesDep = Annotated[SessionFiles, Depends(_session_files)]


@router.head(FILES, response_class=Response, responses=_PENDING)
async def describe_file(path: PathQuery, files: FilesDep) -> Response:
    """Return the headers of a download, without the bytes. The file is read for its `ETag`."""
    return await read_file(path, files)


@router.get(FILES, response_class=Response, responses=_bytes_out(_BYTES))
async def read_file(path: PathQuery, files: FilesDep) -> Response:
    """Download a file's bytes, as a call of workspace.read. `Range` reads a part."""
    given = files.request.headers
    # With If-Range the whole file is read: only that tells whether it is still the same.
    part = {} if "if-range" in given else requested_part(given.get("range"))
    outcome = await files.call("workspace.read", {"path": path, "raw": part})
    if not isinstance(outcome, Finished) or outcome.result.is_error:
        return answer(outcome)
    artifact = await files.content_of(outcome.result)
    if artifact is None:
        return failed(outcome, "NOT_KEPT", 409)
    read = (outcome.result.structured or {})["raw"]
    headers = attachment_headers(path.rstrip("/").rpartition("/")[2]) | {CALL_HEADER: outcome.identity.tool_call_id}
    if part:
        chosen = ByteRange(read["offset"], read["bytes"]) if read["bytes"] else Unsatisfiable()
        return await _send(files, artifact, chosen, read["size"], headers, begins_at=read["offset"])
    etag = headers["ETag"] = f'"{artifact.content_hash}"'
    if matches_etag(given.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    asked = given.get("range") if given.get("if-range") == etag else None
    return await _send(files, artifact, parse_range(asked, artifact.size), artifact.size, headers)


@router.put(
    FILES,
    response_model=WrittenFile,
    responses={201: {"model": WrittenFile}, **_PENDING},
    openapi_extra=_bytes_in(_BYTES),
)
async def write_file(path: PathQuery, files: FilesDep) -> Response:
    """Write a file's whole content, the request's body, as a call of workspace.write."""
    expected = _precondition(files.request)
    idempotency_key(files.request)  # refused before the body is received
    body = await _receive(files, FILES, "upload.bin", as_text=True)
    sha256 = body.sha256
    arguments: dict[str, Any] = {"path": path}
    arguments |= {"content": body.text} if body.text is not None else {"upload": {"sha256": sha256, "bytes": body.size}}
    arguments |= {"if_sha256": expected} if expected else {}
    outcome = await files.call("workspace.write", arguments, upload=body.artifact)
    if isinstance(outcome, Finished) and not outcome.result.is_error:
        created = (outcome.result.structured or {}).get("created") is True
        return answer(outcome, 201 if created else 200, {"ETag": f'"{sha256}"'})
    if isinstance(outcome, Finished) and expected and outcome.result.code == "CONFLICT":
        return failed(outcome, "CONFLICT", 412)
    return answer(outcome)


@router.delete(FILES, response_model=DeletedFile, responses=_PENDING)
async def delete_file(path: PathQuery, files: FilesDep, recursive: bool = False) -> Response:
    """Delete a file, a symbolic link, an empty directory, or with `recursive` a tree, as a call of workspace.delete."""
    arguments = {"path": path, **({"recursive": True} if recursive else {})}
    return answer(await files.call("workspace.delete", arguments))


@router.get(f"{FILES}/list", response_model=FileList, responses=_PENDING)
async def list_files(
    *,
    path: PathQuery = ".",
    depth: int | None = None,
    glob: Annotated[str | None, Query(max_length=4096)] = None,
    limit: int | None = None,
    offset: int | None = None,
    files: FilesDep,
) -> Response:
    """List a page of the entries below a directory, level by level, as a call of workspace.list."""
    asked = {"path": path, "depth": depth, "glob": glob, "limit": limit, "offset": offset}
    arguments = {name: value for name, value in asked.items() if value is not None}
    return answer(await files.call("workspace.list", arguments))


@router.get(f"{FILES}/stat", response_model=FileStatus, responses=_PENDING)
async def stat_file(path: PathQuery, files: FilesDep) -> Response:
    """Describe an entry, as a call of workspace.stat."""
    return answer(await files.call("workspace.stat", {"path": path}))


@router.post(f"{FILES}/move", response_model=MovedFile, responses=_PENDING)
async def move_file(wish: Move, files: FilesDep) -> Response:
    """Rename a file or a tree, as a call of workspace.move."""
    arguments = {"path": wish.source, "target": wish.target, **({"replace": True} if wish.replace else {})}
    return answer(await files.call("workspace.move", arguments))


@router.get(f"{FILES}/tree", response_class=Response, responses=_bytes_out(_TAR))
async def read_tree(files: FilesDep, path: PathQuery = ".") -> Response:
    """Download a directory as a tar, as a call of workspace.read. Paths that may not be read are left out and counted."""
    outcome = await files.call("workspace.read", {"path": path, "raw": {"tree": True}})
    if not isinstance(outcome, Finished) or outcome.result.is_error:
        return answer(outcome)
    artifact = await files.content_of(outcome.result)
    if artifact is None:
        return failed(outcome, "NOT_KEPT", 409)
    read = (outcome.result.structured or {})["raw"]
    headers = attachment_headers("tree.tar") | {CALL_HEADER: outcome.identity.tool_call_id}
    headers |= {"ETag": f'"{artifact.content_hash}"', LEFT_OUT_HEADER: str(read["left_out"])}
    return await _send(files, artifact, None, artifact.size, headers, content_type=_TAR)


@router.put(f"{FILES}/tree", response_model=WrittenTree, responses=_PENDING, openapi_extra=_bytes_in(_TAR))
async def write_tree(files: FilesDep, path: PathQuery = ".") -> Response:
    """Unpack the request's body, a plain tar, below a directory, as a call of workspace.write."""
    idempotency_key(files.request)  # refused before the body is received
    body = await _receive(files, f"{FILES}/tree", "upload.tar", as_text=False)
    upload = {"sha256": body.sha256, "bytes": body.size, "tree": True}
    return answer(await files.call("workspace.write", {"path": path, "upload": upload}, upload=body.artifact))


class _Body(NamedTuple):
    """A body that was received."""

    sha256: str
    size: int
    text: str | None
    """What it is as the `content` of a call; None if it isn't text."""
    artifact: StoredArtifact | None
    """Where its bytes are, if they aren't in `text`."""


async def _receive(files: SessionFiles, route: str, name: str, *, as_text: bool) -> _Body:
    async with slots_of(files.request, route):
        async with slots_of(files.request):
            subject = await files.subject()
        with files.artifacts.spool() as spool:
            await receive_body(files.request, subject.tenant_id, spool)
            artifact: StoredArtifact | None = None
            async with slots_of(files.request):  # only now does it need a thread
                text = await to_thread.run_sync(_text_of, spool) if as_text else None
                if text is None:
                    keep = partial(files.artifacts.keep_spool, spool, subject.tenant_id, subject.session_id)
                    artifact = await to_thread.run_sync(partial(keep, content_type=_BYTES, name=name))
            return _Body(spool.content_hash, spool.size, text, artifact)


def _text_of(spool: Spool) -> str | None:
    """The text, if an agent could write it with workspace.write; None for other bytes."""
    if spool.size > MAX_TEXT_BYTES:
        return None
    spool.file.seek(0)
    content = spool.file.read()
    spool.file.seek(0, 2)
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _precondition(request: Request) -> str | None:
    """What must be there for a write, as `if_sha256` of workspace.write.

    Raises:
        InvalidRequest: another precondition than one ETag, or `If-None-Match: *`.
    """
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if match is None and none_match is None:
        return None
    if match is None and none_match is not None and none_match.strip() == "*":
        return "absent"
    tag = (match or "").strip().strip('"')
    if none_match is None and len(tag) == len("sha256:") + 64 and tag.startswith("sha256:"):
        return tag
    raise InvalidRequest(
        "The precondition can't be checked.", advice="Send `If-Match` with one ETag of the file, or `If-None-Match: *`."
    )


async def _send(
    files: SessionFiles,
    artifact: StoredArtifact,
    part: ByteRange | Unsatisfiable | None,
    size: int,
    headers: dict[str, str],
    *,
    begins_at: int = 0,
    content_type: str = _BYTES,
) -> Response:
    """Send a part of a file of `size` bytes, or with None all of it. `begins_at`: what the artifact's first byte is."""
    if isinstance(part, Unsatisfiable):
        raise HTTPException(416, "The range is past the end", headers={"Content-Range": f"bytes */{size}"})
    start, length = part or ByteRange(0, size)
    headers = {**headers, "Content-Type": content_type, "Content-Length": str(length)}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    status = 200 if part is None else 206
    if files.request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    pieces = files.artifacts.stream(artifact, start - begins_at, length)
    async with slots_of(files.request):
        # Read the first piece while a failure can still set the status.
        first = await to_thread.run_sync(next, pieces, b"")
    return Download(first, pieces, status, headers)
