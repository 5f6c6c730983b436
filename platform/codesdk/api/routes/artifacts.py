"""Artifacts over HTTP: uploads and downloads of raw bytes, streamed in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

import anyio
from anyio import to_thread
from fastapi import Query, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from codesdk.api.access import Caller, ServicesDep, guarded_router, slots_of
from codesdk.api.download import ByteRange, Download, Unsatisfiable, attachment_headers, parse_range
from codesdk.api.unfinished_uploads import UnfinishedUploads
from codesdk.artifacts import Artifact, StoredArtifact
from codesdk.artifacts.digests import CHUNK_BYTES
from codesdk.artifacts.spool import Spool
from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog.audit import AuditAction, AuditTrail
from codesdk.storage.writer import Unit

_MAX_CONTENT_TYPE = 120
"""Maximum characters of a stored content type."""
RECEIVE_TIMEOUT_S = 60.0
"""Maximum seconds without data before an upload is aborted, so that a hanging client frees its slot."""

router = guarded_router()


class ArtifactList(FrozenModel):
    """Artifacts, newest first. Pass the last id as `after` for the next page."""

    artifacts: list[Artifact]


@router.post("/v1/artifacts", status_code=201)
async def put_artifact(
    request: Request,
    caller: Caller,
    services: ServicesDep,
    name: Annotated[str, Query(min_length=1, max_length=255)] = "artifact",
    session_id: Annotated[str | None, Query(max_length=40)] = None,
) -> Artifact:
    """Store the request's body as an artifact of the tenant, and of the session if one is named."""
    session = None
    if session_id is not None:
        async with slots_of(request):
            session = (await to_thread.run_sync(services.sessions.find, caller.tenant_id, session_id)).id
    kind = request.headers.get("content-type", "application/octet-stream")[:_MAX_CONTENT_TYPE]
    with services.artifacts.spool() as spool:
        await receive_body(request, caller.tenant_id, spool)
        async with slots_of(request):  # only now does it need a thread
            artifact = await to_thread.run_sync(
                lambda: services.artifacts.keep_spool(spool, caller.tenant_id, session, content_type=kind, name=name)
            )
            await to_thread.run_sync(services.writer.run, lambda unit: services.artifacts.record(unit, artifact))
    return artifact


@router.get("/v1/artifacts")
def list_artifacts(
    caller: Caller,
    services: ServicesDep,
    session_id: Annotated[str | None, Query(max_length=40)] = None,
    after: Annotated[str | None, Query(max_length=40)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> ArtifactList:
    """List the tenant's artifacts, newest first."""
    return ArtifactList(artifacts=services.artifacts.listing(caller.tenant_id, session_id, after, limit))


@router.head("/v1/artifacts/{artifact_id}", response_class=Response)
def describe_artifact(request: Request, artifact_id: str, caller: Caller, services: ServicesDep) -> Response:
    """Return the headers of a download, without the bytes."""
    return read_artifact(request, artifact_id, caller, services)


@router.get("/v1/artifacts/{artifact_id}", response_class=Response)
def read_artifact(request: Request, artifact_id: str, caller: Caller, services: ServicesDep) -> Response:
    """Download the bytes, verified before they are sent. `Range` requests a part."""
    artifact = services.artifacts.find(caller.tenant_id, artifact_id)
    etag = f'"{artifact.content_hash}"'
    headers = {**attachment_headers(artifact.name), "ETag": etag}
    if matches_etag(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = artifact.content_type
    header = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    part = parse_range(header, artifact.size)
    if isinstance(part, Unsatisfiable):
        raise HTTPException(416, "The range is past the end", headers={"Content-Range": f"bytes */{artifact.size}"})
    status, whole = 200, ByteRange(0, artifact.size)
    if part is not None:
        status, headers["Content-Range"] = 206, f"bytes {part.start}-{part.start + part.length - 1}/{artifact.size}"
    chosen = part or whole
    if request.method == "HEAD":
        return Response(status_code=status, headers={**headers, "Content-Length": str(chosen.length)})
    pieces = services.artifacts.stream(artifact, chosen.start, chosen.length)
    # Read the first piece while a failure can still set the status.
    return Download(next(pieces, b""), pieces, status, {**headers, "Content-Length": str(chosen.length)})


@router.delete("/v1/artifacts/{artifact_id}")
def delete_artifact(artifact_id: str, caller: Caller, services: ServicesDep) -> Artifact:
    """Delete an artifact. Events keep their references to it, which are then dangling."""

    def keep(unit: Unit, gone: StoredArtifact) -> None:
        known = {"name": gone.name, "content_hash": gone.content_hash, "session": gone.session_id}
        act = AuditAction.ARTIFACT_DELETED
        AuditTrail(services.clock).record(unit, gone.tenant_id, act, actor=caller.id, target=gone.id, **known)

    return services.artifacts.delete(caller.tenant_id, artifact_id, keep)


async def receive_body(request: Request, tenant: TenantId, spool: Spool) -> None:
    """Write the request's body to the spool, in bounded memory.

    Raises:
        HTTPException: the client sends nothing for too long, or left. ArtifactTooLarge, ArtifactsUnavailable: as `write`.
        TooManyUploadBytes: the tenant's unfinished uploads have too many bytes.
    """
    uploads = cast("UnfinishedUploads", request.app.state.unfinished_uploads)
    with uploads.upload(tenant) as count:
        await _receive(request, spool, count)


async def _receive(request: Request, spool: Spool, count: Callable[[int], None]) -> None:
    gathered = bytearray()
    body = request.stream()
    try:
        while True:
            with anyio.fail_after(RECEIVE_TIMEOUT_S):
                piece = await anext(body, None)
            if piece is not None:
                count(len(piece))
                gathered += piece
            if gathered and (piece is None or len(gathered) >= CHUNK_BYTES):
                # One thread hop per MiB instead of one per network read.
                await to_thread.run_sync(spool.write, bytes(gathered))
                gathered.clear()
            if piece is None:
                return
    except TimeoutError as error:
        raise HTTPException(408, f"No data arrived for {RECEIVE_TIMEOUT_S:.0f} seconds") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "The body ended too early") from error


def matches_etag(given: str | None, etag: str) -> bool:
    """Whether an `If-None-Match` names that tag."""
    if given is None:
        return False
    return given.strip() == "*" or etag in [one.strip().removeprefix("W/") for one in given.split(",")]
