"""Trusted issuers, and how their claims map to principals: the operator's `logins.yaml`."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from codesdk.documents import DocumentUnreadable, FileInvalid, read_document
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.model import FrozenModel
from codesdk.tenancy.principal import Name, Role

MAX_ISSUERS = 16
MAX_VALUES = 200
"""Maximum number of mapped values of one claim."""

Text = Annotated[str, Field(min_length=1, max_length=255)]
ClaimPath = Text | Annotated[tuple[Text, ...], Field(min_length=1, max_length=5)]
"""A claim's name, or the path to a nested claim."""


class Algorithm(StrEnum):
    """The supported signature algorithms. None is symmetric: with a shared key, the verifier could also sign."""

    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    EDDSA = "EdDSA"


class LoginsInvalid(FileInvalid):
    """The list of issuers is invalid. No login uses it, and CodeSDK doesn't start with it."""

    code = "LOGINS_FILE_INVALID"


class TenantMapping(FrozenModel):
    """Maps a claim to a tenant. Unlisted values are refused: a claim never creates or names a tenant by itself."""

    claim: ClaimPath
    values: Annotated[dict[Text, Name], Field(min_length=1, max_length=MAX_VALUES)]
    """The claim's value -> the tenant's name."""


class RoleMapping(FrozenModel):
    """Maps a claim, with one value or a list, to roles."""

    claim: ClaimPath
    values: Annotated[dict[Text, tuple[Role, ...]], Field(min_length=1, max_length=MAX_VALUES)]


class SessionTemplate(FrozenModel):
    """The session that is opened for a login that has none."""

    profile: str = Field(default="default", max_length=40)
    permission_mode: PermissionMode = PermissionMode.AUTO
    labels: dict[Text, Text] = Field(default={}, max_length=32)


class Issuer(FrozenModel):
    """An issuer that the operator trusts, and for what."""

    issuer: Text
    """Its identifier: an https URL, exactly as in its tokens' `iss`."""
    audience: Text
    """The audience that its tokens must have, usually the URL of the MCP endpoint."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = (Algorithm.RS256, Algorithm.ES256)
    jwks: Text | None = None
    """URL of its keys. None: taken from its OpenID configuration."""
    tenant: Name | None = None
    tenants: TenantMapping | None = None
    roles: tuple[Role, ...] = ()
    """Roles of everyone with a token of this issuer."""
    roles_from: RoleMapping | None = None
    scopes: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    """Scopes that a token must have, all of them."""
    name: ClaimPath | None = None
    """The claim with a display name. None, or no such claim: a name from the subject's hash."""
    skew_s: float = Field(default=60.0, ge=0, le=300)
    """Permitted clock difference, in seconds."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Non-public networks that its keys may be fetched from."""
    allow_http: bool = False
    """Whether its keys may be fetched over http, which anyone on the path can tamper with. For issuers on this machine.
    """
    session: SessionTemplate = SessionTemplate()

    @field_validator("issuer", "jwks")
    @classmethod
    def _check_url(cls, given: str | None) -> str | None:
        parts = urlsplit(given or "https://none.example")
        _ = parts.port  # raises if the port is invalid
        if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc or parts.fragment:
            raise ValueError("it must be an https:// URL without a password and a fragment")
        return given

    @model_validator(mode="after")
    def _check(self) -> Issuer:
        if (self.tenant is None) == (self.tenants is None):
            raise ValueError("it has `tenant`, or `tenants` by a claim: one of the two")
        if not self.roles and self.roles_from is None:
            raise ValueError("it has neither `roles` nor `roles_from`, so its logins would have no permissions")
        given = {
            *self.roles,
            *(role for roles in (self.roles_from.values.values() if self.roles_from else ()) for role in roles),
        }
        if Role.OPERATOR in given:
            raise ValueError("a login can't give the role operator, which needs an API key")
        if not self.allow_http and any(url and url.startswith("http://") for url in (self.issuer, self.jwks)):
            raise ValueError("it is reached over http, which `allow_http` allows")
        return self


class Issuers(FrozenModel):
    """The content of `logins.yaml`."""

    version: Literal[1]
    issuers: Annotated[tuple[Issuer, ...], Field(min_length=1, max_length=MAX_ISSUERS)]

    @field_validator("issuers")
    @classmethod
    def _check_unique(cls, given: tuple[Issuer, ...]) -> tuple[Issuer, ...]:
        names = [each.issuer for each in given]
        if len(set(names)) != len(names):
            raise ValueError("it lists an issuer twice")
        return given


def read_issuers(path: Path, *, optional: bool = False) -> tuple[Issuer, ...]:
    """Read the issuers. `optional`: a missing file means none.

    Raises:
        LoginsInvalid: with line and column.
    """
    if optional and not path.exists():
        return ()
    try:
        return read_document(path).model(Issuers).issuers
    except DocumentUnreadable as error:
        raise LoginsInvalid.of(path, error) from error


def claim_at(claims: dict[str, Any], path: ClaimPath) -> Any:
    """Return the claim's value; None if it's missing."""
    found: Any = claims
    for name in (path,) if isinstance(path, str) else path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
