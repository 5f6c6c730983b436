"""What is sent out: webhooks, mail, and requests to remote MCP servers."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from codesdk.settings.group import SettingsGroup, split_names


class OutboundSettings(SettingsGroup):
    """Who is spoken to outside."""

    webhook_threads: int = Field(default=4, ge=0, le=64)
    """Threads of an API process that send webhooks, chat messages and mail; 0: it sends none."""
    webhook_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Networks that are sent to although they are not public: `10.20.0.0/16`, with commas between."""
    source_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Networks in which remote MCP servers may be although they are not public, and there also without TLS."""
    webhook_allow_http: bool = False
    """Whether a target may be `http://`, which anybody on the way can read and change."""
    webhook_log_days: float = Field(default=30.0, gt=0)
    """Days that deliveries which are over stay in the log."""
    smtp_url: str = Field(default="", repr=False)
    """`smtps://user:password@host:465`, or `smtp://host:587` (STARTTLS where offered); empty: no mail."""
    mail_from: str = ""
    """The address that mail comes from."""

    @field_validator("webhook_networks", "source_networks", mode="before")
    @classmethod
    def _read_networks(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        # As a parent process hands its settings on, a tuple is written `(IPv4Network('10.0.0.0/8'),)`.
        return (
            tuple(re.findall(r"[0-9a-fA-F:.]+/[0-9]+", given)) if given.startswith("(") else tuple(split_names(given))
        )

    @field_validator("smtp_url")
    @classmethod
    def _check_smtp_url(cls, given: str) -> str:
        parts = urlsplit(given)
        _ = parts.port  # raises where it is none
        if given and (parts.scheme not in ("smtp", "smtps") or not parts.hostname):
            raise ValueError("it is no address like smtps://user:password@mail.example.com:465")
        return given

    @model_validator(mode="after")
    def _check_mail(self) -> Self:
        if bool(self.smtp_url) != bool(self.mail_from) or (self.mail_from and "@" not in self.mail_from):
            raise ValueError("smtp_url and mail_from (an address) are given both, or neither")
        return self
