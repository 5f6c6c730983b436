"""Where the API listens, and the names that it goes by."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from codesdk.errors import ExitCode, Fault
from codesdk.settings.group import SettingsGroup, split_names

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]", re.ASCII)


class PortTaken(Fault):
    """Another program listens on the address."""

    code = "PORT_TAKEN"
    status = 409
    exit_code = ExitCode.CANNOT_WRITE


class ApiSettings(SettingsGroup):
    """Where clients find the API."""

    host: str = "127.0.0.1"
    """Address that the API listens on; loopback unless an operator says otherwise."""
    port: int = Field(default=8765, ge=0, le=65535)
    public_url: str = ""
    """Where clients reach the API from outside, through a proxy: `https://codesdk.example.com`. In links and MCP URLs;
    its name is one that the API goes by. Empty: the address that a caller used."""
    allowed_hosts: str = ""
    """More names that the API goes by (`Host` and `Origin`), with commas between; loopback and `host` always are."""

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, given: str) -> str:
        if not given:
            return given
        parts = urlsplit(given)
        _ = parts.port  # raises where it is none
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in given:
            raise ValueError("it is no address like https://codesdk.example.com, without a query or a password")
        return given.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _check_allowed_hosts(cls, given: str) -> str:
        for name in split_names(given):
            if _HOST.fullmatch(name) is None:
                raise ValueError(f"{name!r} is no name of a host (without scheme and port; no wildcards)")
        return given

    def names(self) -> tuple[str, ...]:
        """The names besides loopback and `host` that the API goes by, as a `Host` header has them."""
        public = urlsplit(self.public_url).hostname
        own = () if public is None else (f"[{public}]" if ":" in public else public,)
        return tuple(dict.fromkeys((*own, *split_names(self.allowed_hosts))))
