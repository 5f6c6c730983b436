"""Artifacts over HTTP: raw bytes in, the same bytes out."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from anyio import Semaphore, to_thread
from fastapi import Query, Request, Response

from codesdk.api.access import Caller, Wired, guarded_router
from codesdk.artifacts import Artifact

_TYPE = 120
"""Characters of a content type that are kept."""
_uploads = Semaphore(4)  # at most this many uploads in memory at once; the others wait with their bytes in the network

router = guarded_router()


@router.post("/v1/artifacts", status_code=201)
async def put_artifact(
    request: Request,
    caller: Caller,
    services: Wired,
    name: Annotated[str, Query(min_length=1, max_length=255)] = "artifact",
    session_id: Annotated[str | None, Query(max_length=40)] = None,
) -> Artifact:
    """Keep the request's body. It belongs to the tenant, and to the session where one is named."""
    session = None
    if session_id is not None:
        session = (await to_thread.run_sync(services.sessions.find, caller.tenant_id, session_id)).id
    kind = request.headers.get("content-type", "application/octet-stream")[:_TYPE]
    async with _uploads:
        content = await request.body()
        artifact = await to_thread.run_sync(
            lambda: services.artifacts.keep(content, caller.tenant_id, session, content_type=kind, name=name)
        )
    await to_thread.run_sync(services.writer.run, lambda unit: services.artifacts.record(unit, artifact))
    return artifact


@router.get("/v1/artifacts/{artifact_id}", response_class=Response)
def read_artifact(artifact_id: str, caller: Caller, services: Wired) -> Response:
    """The bytes, checked against their hash."""
    artifact = services.artifacts.find(caller.tenant_id, artifact_id)
    headers = {
        # What tools and agents wrote must not run in a browser in this service's name.
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(artifact.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "ETag": f'"{artifact.content_hash}"',
    }
    return Response(services.artifacts.read(artifact), headers=headers, media_type=artifact.content_type)
