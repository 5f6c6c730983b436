"""Service information (health, metrics, login issuers) and the tool catalog."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.decisions import Classification
from codesdk.domain.ids import SessionId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault
from codesdk.mcphost.server.protected_resource import METADATA_PATH

router = guarded_router()

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Health(FrozenModel):
    """The service's status."""

    status: str
    version: str


class NoLogins(Fault):
    """This installation accepts no logins. Clients need a session token."""

    code = "NO_LOGINS"
    status = 404


class ToolEntry(FrozenModel):
    """A tool of the registry."""

    name: str
    wire_name: str
    """Its name for MCP clients."""
    title: str
    description: str
    classification: Classification
    enabled: bool
    """False: the tool runs only if the policy bundle enables it."""
    schema_hash: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


class ToolList(FrozenModel):
    """The tools of the caller's tenant."""

    tools: list[ToolEntry]
    problems: dict[str, str] = {}
    """Errors in changed manifests, which are not in force: by `shared`, `tenants` or `tenant`."""


@router.get("/health")
def read_health(services: ServicesDep) -> Health:
    """Check that the service and its database answer."""
    services.log.head(SessionId(""))
    return Health(status="ok", version=version("codesdk"))


@router.get("/v1/tools")
def list_tools(caller: Caller, services: ServicesDep) -> ToolList:
    """List all tools, including those that policy never allows."""
    enabled = services.bundles.of(caller.tenant_id).enabled
    found = services.registry.problems()
    problems = {**{name: found.get(name) for name in ("shared", "tenants")}, "tenant": found.get(caller.tenant_id)}
    return ToolList(
        tools=[
            ToolEntry(
                name=tool.name,
                wire_name=tool.wire_name,
                title=tool.title,
                description=tool.description,
                classification=tool.classification,
                enabled=tool.enabled or tool.name in enabled,
                schema_hash=tool.schema_hash,
                input_schema=dict(tool.input_schema),
                output_schema=dict(tool.output_schema) if tool.output_schema else None,
            )
            for tool in services.registry.of(caller.tenant_id).tools()
        ],
        problems={name: str(problem) for name, problem in problems.items() if problem is not None},
    )


@router.get(METADATA_PATH)
@router.get("/.well-known/oauth-protected-resource")
def read_protected_resource(request: Request) -> JSONResponse:
    """Describe the MCP endpoint as an OAuth protected resource: its URL and trusted issuers.

    Raises:
        NoLogins: no issuer is configured.
    """
    metadata: dict[str, Any] | None = request.app.state.mcp.resource.metadata(request.scope)
    if metadata is None:
        raise NoLogins("This installation accepts no logins.", advice="Use a session's token.")
    return JSONResponse(metadata)


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
def read_metrics(caller: Caller, services: ServicesDep) -> Response:
    """Return metrics in Prometheus' format. They come from the database, so replicas differ only in process metrics."""
    return Response(services.metrics.page(caller), headers={"Content-Type": PROMETHEUS_TEXT})
