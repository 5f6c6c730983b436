"""Figures of the installation, in Prometheus' text format (0.0.4)."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from codesdk.api.access import Caller, Wired, guarded_router
from codesdk.domain.calls import DenialCode

router = guarded_router()

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REFUSED = "codesdk_calls_refused_total"


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
)
def read_metrics(caller: Caller, services: Wired) -> Response:
    """Counters for a Prometheus server. They stand in the database, so each replica of the API tells the same."""
    return Response(_page(services.refusals.totals(caller)), headers={"Content-Type": CONTENT_TYPE})


def _page(refused: Mapping[DenialCode, int]) -> str:
    lines = [
        f"# HELP {REFUSED} Tool calls that did not run, by the code that their callers were told.",
        f"# TYPE {REFUSED} counter",
        *(f'{REFUSED}{{code="{code}"}} {calls}' for code, calls in refused.items()),
    ]
    return "\n".join(lines) + "\n"
