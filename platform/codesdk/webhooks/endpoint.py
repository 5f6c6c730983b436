"""Endpoints: where a tenant receives notifications, and of which types."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from codesdk.domain.events import EventType
from codesdk.domain.ids import EndpointId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Conflict, ExitCode, Fault, NotFound

MAX_ENDPOINTS = 50
"""Endpoints per tenant."""
TEST_TYPE = "webhook.test"
"""Type of a test message."""
_PREFIXES = ("approval.", "task.", "sandbox.")
DELIVERABLE_TYPES = frozenset(
    {EventType.CALL_COMPLETED, EventType.CALL_DENIED}
    | {known for known in EventType if known.value.startswith(_PREFIXES)}
) - {EventType.APPROVAL_PREVIEW_STARTED, EventType.APPROVAL_PREVIEWED}
"""Events that are delivered: no high-volume ones, and one message per approval, sent when it can be answered."""
_NAMES = frozenset(each.value for each in DELIVERABLE_TYPES)
_GROUPS = frozenset({f"{prefix}*" for prefix in _PREFIXES})


class EndpointKind(StrEnum):
    """How messages are delivered."""

    WEBHOOK = "webhook"
    """A signed POST for a program (Standard Webhooks)."""
    CHAT = "chat"
    """A message to an incoming webhook of a chat, in Slack's format."""
    MAIL = "mail"
    """Mail through the operator's SMTP server."""


def _check_type(name: str) -> str:
    if name not in _NAMES and name not in _GROUPS:
        known = ", ".join(sorted(_NAMES | _GROUPS))
        raise ValueError(f"{name!r} is not an event type that can be delivered; known types: {known}")
    return name


TypePattern = Annotated[str, Field(max_length=48), AfterValidator(_check_type)]
"""An event type, or all of a group: `approval.requested`, `task.*`."""


class NewEndpoint(FrozenModel):
    """A request to create an endpoint."""

    kind: EndpointKind = EndpointKind.WEBHOOK
    target: str = Field(min_length=1, max_length=2000)
    """An `https://` URL; of kind `mail` an address."""
    types: tuple[TypePattern, ...] = Field(default=("approval.*",), min_length=1, max_length=32)
    """Event types to deliver."""
    principal_id: PrincipalId | None = Field(default=None, max_length=40)
    """The approver on whose behalf links and tokens in messages vote; none: messages carry no links."""
    description: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _check_description(self) -> Self:
        if not self.description.isprintable():
            raise ValueError("description: control characters")
        return self


class SigningKey(FrozenModel):
    """Lifetime of a signing key, without the secret."""

    created_at: float
    retires_at: float | None = None
    """Until then it signs together with newer keys."""


class Endpoint(FrozenModel):
    """An endpoint, without its secrets."""

    id: EndpointId
    tenant_id: TenantId
    kind: EndpointKind
    target: str
    """Without credentials; for a chat only the origin."""
    types: tuple[str, ...]
    principal_id: PrincipalId | None = None
    description: str = ""
    signing_keys: tuple[SigningKey, ...] = ()
    """Newest first."""
    created_at: float
    disabled_at: float | None = None
    disabled_reason: str | None = None
    failures: int = 0
    """Consecutive failed attempts."""

    def wants(self, type_: str) -> bool:
        """Whether this type is delivered here."""
        return any(type_ == name or (name.endswith("*") and type_.startswith(name[:-1])) for name in self.types)


class EndpointWithSecret(FrozenModel):
    """A created endpoint, or one with a rotated key."""

    endpoint: Endpoint
    secret: str | None = None
    """`whsec_…`, for verifying signatures; shown only once. None for unsigned kinds (chat, mail)."""


class EndpointUnknown(NotFound):
    """No such endpoint in this tenant."""

    code = "ENDPOINT_UNKNOWN"


class EndpointLimitReached(Conflict):
    """The tenant has reached its limit of endpoints."""

    code = "ENDPOINTS_FULL"


class InvalidEndpoint(Fault):
    """The endpoint cannot be created or changed as requested."""

    code = "ENDPOINT_WRONG"
    status = 422
    exit_code = ExitCode.USAGE
