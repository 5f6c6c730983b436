"""Webhook endpoints and their deliveries over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import Field

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.model import FrozenModel
from codesdk.webhooks.delivery import Delivery, DeliveryState
from codesdk.webhooks.endpoint import Endpoint, EndpointWithSecret, NewEndpoint
from codesdk.webhooks.endpoint_service import OVERLAP_S

router = guarded_router()


class EndpointList(FrozenModel):
    """Endpoints, oldest first."""

    endpoints: list[Endpoint]


class Rotation(FrozenModel):
    """Options for renewing a signing key."""

    overlap_s: float = Field(default=OVERLAP_S, ge=0, le=30 * 24 * 3600.0)
    """Seconds for which the old key keeps signing, too; 0 if the old key was leaked."""


class Stop(FrozenModel):
    """The reason for disabling an endpoint."""

    reason: str = Field(default="disabled by an operator", max_length=200)


class DeliveryList(FrozenModel):
    """Deliveries, newest first."""

    deliveries: list[Delivery]


@router.get("/v1/webhooks")
def list_endpoints(caller: Caller, services: ServicesDep) -> EndpointList:
    """List the tenant's endpoints, without their secrets."""
    return EndpointList(endpoints=services.outbound.endpoints.listing(caller.tenant_id))


@router.post("/v1/webhooks", status_code=201)
def create_endpoint(wish: NewEndpoint, caller: Caller, services: ServicesDep) -> EndpointWithSecret:
    """Create an endpoint. Its `secret` can't be read again."""
    return services.outbound.endpoints.create(caller.tenant_id, wish)


@router.get("/v1/webhooks/{endpoint_id}")
def read_endpoint(endpoint_id: str, caller: Caller, services: ServicesDep) -> Endpoint:
    """Return an endpoint."""
    return services.outbound.endpoints.find(caller.tenant_id, endpoint_id)


@router.delete("/v1/webhooks/{endpoint_id}")
def delete_endpoint(endpoint_id: str, caller: Caller, services: ServicesDep) -> Endpoint:
    """Delete an endpoint, with its pending deliveries and its log."""
    return services.outbound.endpoints.delete(caller.tenant_id, endpoint_id)


@router.post("/v1/webhooks/{endpoint_id}/rotate")
def rotate_key(endpoint_id: str, wish: Rotation, caller: Caller, services: ServicesDep) -> EndpointWithSecret:
    """Create a new signing key. Its `secret` can't be read again."""
    return services.outbound.endpoints.rotate(caller.tenant_id, endpoint_id, wish.overlap_s)


@router.post("/v1/webhooks/{endpoint_id}/enable")
def enable_endpoint(endpoint_id: str, caller: Caller, services: ServicesDep) -> Endpoint:
    """Enable a disabled endpoint."""
    return services.outbound.endpoints.enable(caller.tenant_id, endpoint_id)


@router.post("/v1/webhooks/{endpoint_id}/disable")
def disable_endpoint(endpoint_id: str, wish: Stop, caller: Caller, services: ServicesDep) -> Endpoint:
    """Disable an endpoint."""
    return services.outbound.endpoints.disable(caller.tenant_id, endpoint_id, wish.reason)


@router.post("/v1/webhooks/{endpoint_id}/test", status_code=202)
def test_endpoint(endpoint_id: str, caller: Caller, services: ServicesDep) -> Delivery:
    """Send a message of type `webhook.test`. The delivery that is returned shows the outcome later."""
    return services.outbound.endpoints.test(caller.tenant_id, endpoint_id)


@router.get("/v1/webhooks/{endpoint_id}/deliveries")
def list_deliveries(
    endpoint_id: str,
    caller: Caller,
    services: ServicesDep,
    *,
    state: Annotated[DeliveryState | None, Query()] = None,
    before: Annotated[str | None, Query(max_length=40)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryList:
    """List the endpoint's deliveries, newest first. `before`: the last id of the previous page."""
    found = services.outbound.endpoints.deliveries(caller.tenant_id, endpoint_id, state, before, limit)
    return DeliveryList(deliveries=found)


@router.get("/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}")
def read_delivery(endpoint_id: str, delivery_id: str, caller: Caller, services: ServicesDep) -> Delivery:
    """Return a delivery, with its attempts."""
    return services.outbound.endpoints.delivery(caller.tenant_id, endpoint_id, delivery_id)


@router.post("/v1/webhooks/{endpoint_id}/deliveries/{delivery_id}/replay", status_code=202)
def replay_delivery(endpoint_id: str, delivery_id: str, caller: Caller, services: ServicesDep) -> Delivery:
    """Send a delivery again, under the same id."""
    return services.outbound.endpoints.replay(caller.tenant_id, endpoint_id, delivery_id)
