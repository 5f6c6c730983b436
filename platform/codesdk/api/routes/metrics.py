"""Metrics of the installation, in Prometheus' text format (0.0.4)."""

from __future__ import annotations

from starlette.responses import Response

from codesdk.api.access import Caller, ServicesDep, guarded_router

router = guarded_router()

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
def read_metrics(caller: Caller, services: ServicesDep) -> Response:
    """Return metrics in Prometheus' format. They come from the database, so replicas differ only in process metrics."""
    return Response(services.metrics.page(caller), headers={"Content-Type": CONTENT_TYPE})
