"""Egress rules: the hosts, wildcards and ports that an exec may reach. No rules, no egress. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from codesdk.domain.model import FrozenModel
from codesdk.domain.network import hostnames
from codesdk.domain.network.hostnames import HostPattern

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_NEVER_INJECTED = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect"}
)
HTTP_PORT, HTTPS_PORT = 80, 443
Port = Annotated[int, Field(ge=1, le=65_535)]


class Protocol(StrEnum):
    """The protocol that the tool uses with the proxy."""

    TLS = "tls"
    """CONNECT, then end-to-end TLS; the proxy sees only the server name in the ClientHello."""
    HTTP = "http"
    """A request with an absolute `http://` URL, which the proxy reads."""


class SecretHeader(FrozenModel):
    """A header that the proxy injects; its value never enters the sandbox."""

    header: str
    secret: str = Field(min_length=1, max_length=200)
    """The secret's name in the worker's secret resolver."""
    prefix: str = Field(default="", max_length=64, pattern=r"^[ -~]*$")
    """Text before the value, such as `Bearer `."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        name = self.header.lower()
        if not _TOKEN.fullmatch(name) or name in _NEVER_INJECTED or name.startswith("proxy-"):
            raise ValueError(f"{self.header!r} can't be added as a header")
        return self


class EgressRule(FrozenModel):
    """A host or wildcard, and its ports."""

    host: HostPattern
    """`a.example`; `*.a.example` for its subdomains but not itself; or an IP address."""
    protocol: Protocol = Protocol.TLS
    ports: tuple[Port, ...] = ()
    """As the tool requests them. Default: 443 for `tls`, 80 for `http`."""
    upstream: Literal["same", "https"] = "same"
    """`https`: send `http://` requests over TLS, with the certificate verified."""
    upstream_port: Port = HTTPS_PORT
    """The upstream port if `upstream` is `https`."""
    inject: tuple[SecretHeader, ...] = Field(default=(), max_length=8)
    allow_missing_sni: bool = False
    """Allow TLS without a server name; then only the address ties the connection to the rule."""
    allow_ech: bool = False
    """Allow encrypted ClientHello, whose inner host the proxy can't see. The outer name is still compared."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.protocol is Protocol.TLS and self.upstream != "same":
            raise ValueError("`upstream` is for `protocol: http`: TLS is not changed")
        if self.protocol is Protocol.HTTP and (self.allow_missing_sni or self.allow_ech):
            raise ValueError("`allow_missing_sni` and `allow_ech` are for `protocol: tls`")
        if self.inject and self.upstream != "https":
            raise ValueError(
                "a secret is added only where `upstream` is `https`: elsewhere it would go out in the clear"
            )
        if self.inject and self.host.startswith("*."):
            raise ValueError("a secret is added for one host, not for a wildcard")
        names = [item.header.lower() for item in self.inject]
        if len(set(names)) != len(names):
            raise ValueError("one header is added twice")
        return self

    @property
    def reached_ports(self) -> tuple[int, ...]:
        """The ports, or the protocol's default."""
        return self.ports or ((HTTPS_PORT,) if self.protocol is Protocol.TLS else (HTTP_PORT,))

    @property
    def name(self) -> str:
        """The rule's name in records."""
        return f"{self.protocol}://{self.host}:{','.join(map(str, self.reached_ports))}"

    def covers(self, host: str, port: int, protocol: Protocol) -> bool:
        """Whether the rule allows this destination; `host` is canonical."""
        return protocol is self.protocol and port in self.reached_ports and hostnames.covers(self.host, host)


class EgressRules(FrozenModel):
    """An exec's egress rules and budgets."""

    rules: tuple[EgressRule, ...] = Field(default=(), max_length=256)
    at_once: int = Field(default=16, ge=1, le=32)
    """Concurrent connections per exec."""
    connections: int = Field(default=256, ge=1)
    """Total connections per exec."""
    bytes_up: int = Field(default=32 * 1024 * 1024, ge=0)
    """Total bytes that an exec may send."""
    bytes_down: int = Field(default=1024 * 1024 * 1024, ge=0)
    """Total bytes that an exec may receive."""
    idle_s: float = Field(default=60.0, gt=0)
    """Idle timeout of a connection in seconds."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen: set[tuple[str, Protocol, int]] = set()
        for rule in self.rules:
            for port in rule.reached_ports:
                key = (rule.host, rule.protocol, port)
                if key in seen:
                    raise ValueError(f"two rules for {rule.protocol}://{rule.host}:{port}")
                seen.add(key)
        return self

    def __bool__(self) -> bool:
        """Whether anything is allowed."""
        return bool(self.rules)

    def find(self, host: str, port: int, protocol: Protocol) -> EgressRule | None:
        """The rule for a destination: an exact host before a wildcard, a longer wildcard before a shorter one."""
        found = [rule for rule in self.rules if rule.covers(host, port, protocol)]
        return max(found, key=lambda rule: (not rule.host.startswith("*."), len(rule.host)), default=None)


DENY_ALL = EgressRules()
