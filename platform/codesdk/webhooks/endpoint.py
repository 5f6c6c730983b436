"""Where a tenant wants to be told, and of what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from codesdk.domain.events import EventType
from codesdk.domain.ids import EndpointId, PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

MAX_ENDPOINTS = 50
"""Endpoints of one tenant."""
TEST_TYPE = "webhook.test"
"""Type of the message that a person sends to see whether an endpoint works."""
_PREFIXES = ("approval.", "task.", "sandbox.")
DELIVERABLE_TYPES = frozenset(
    {EventType.CALL_COMPLETED, EventType.CALL_DENIED}
    | {known for known in EventType if known.value.startswith(_PREFIXES)}
) - {EventType.APPROVAL_PREVIEW_STARTED, EventType.APPROVAL_PREVIEWED}
"""Events that can be told: none of those that come by the hundred, and one message for a question, when it can be answered."""
_NAMES = frozenset(each.value for each in DELIVERABLE_TYPES)
_GROUPS = frozenset({f"{prefix}*" for prefix in _PREFIXES})


class EndpointKind(StrEnum):
    """In what form."""

    WEBHOOK = "webhook"
    """A signed POST for a program (Standard Webhooks)."""
    CHAT = "chat"
    """A message to an incoming webhook of a chat, in Slack's format."""
    MAIL = "mail"
    """A mail, by the operator's server."""


def _check_type(name: str) -> str:
    if name not in _NAMES and name not in _GROUPS:
        known = ", ".join(sorted(_NAMES | _GROUPS))
        raise ValueError(f"{name!r} is no type of event that is told; there are: {known}")
    return name


TypePattern = Annotated[str, Field(max_length=48), AfterValidator(_check_type)]
"""A type of event, or all of a group: `approval.requested`, `task.*`."""


class NewEndpoint(FrozenModel):
    """An endpoint to make."""

    kind: EndpointKind = EndpointKind.WEBHOOK
    target: str = Field(min_length=1, max_length=2000)
    """An `https://` URL; of kind `mail` an address."""
    types: tuple[TypePattern, ...] = Field(default=("approval.*",), min_length=1, max_length=32)
    """What it is told."""
    principal_id: PrincipalId | None = Field(default=None, max_length=40)
    """An approver, as whom the links and tokens in its messages answer; none: they only tell."""
    description: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _check_description(self) -> Self:
        if not self.description.isprintable():
            raise ValueError("description: control characters")
        return self


class SigningKey(FrozenModel):
    """A signing secret, as it may be shown."""

    created_at: float
    retires_at: float | None = None
    """Until then both it and the newer ones sign."""


class Endpoint(FrozenModel):
    """An endpoint, without its secrets."""

    id: EndpointId
    tenant_id: TenantId
    kind: EndpointKind
    target: str
    """As far as it may be shown: of a chat's URL only where it leads."""
    types: tuple[str, ...]
    principal_id: PrincipalId | None = None
    description: str = ""
    signing_keys: tuple[SigningKey, ...] = ()
    """Newest first."""
    created_at: float
    disabled_at: float | None = None
    disabled_reason: str | None = None
    failures: int = 0
    """Attempts that failed in a row."""

    def wants(self, type_: str) -> bool:
        """Whether it is told of that."""
        return any(type_ == name or (name.endswith("*") and type_.startswith(name[:-1])) for name in self.types)


class EndpointWithSecret(FrozenModel):
    """An endpoint that was made, or whose key was renewed."""

    endpoint: Endpoint
    secret: str | None = None
    """`whsec_…`, by which a receiver verifies; shown this once. None where nothing is signed (chat, mail)."""


class EndpointUnknown(Fault):
    """No such endpoint in this tenant."""

    code = "ENDPOINT_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class EndpointLimitReached(Fault):
    """The tenant has as many endpoints as it may."""

    code = "ENDPOINTS_FULL"
    status = 409
    exit_code = ExitCode.FAILED


class InvalidEndpoint(Fault):
    """It cannot be made or changed like that."""

    code = "ENDPOINT_WRONG"
    status = 422
    exit_code = ExitCode.USAGE
