"""Validates targets. Addresses are checked when an endpoint is created, and again for each connection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from codesdk.domain.network.addresses import AddressPolicy
from codesdk.domain.network.hostnames import InvalidHostname, canonical_host, parse_address, url_host
from codesdk.webhooks.endpoint import InvalidEndpoint

_PATH = re.compile(r"[!-~]*")
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Destination:
    """A normalized URL."""

    tls: bool
    host: str
    """A canonical host name, or an IP address."""
    port: int
    path: str
    """Including the query."""

    @property
    def origin(self) -> str:
        """Scheme, host and port; the port is left out if it is the default."""
        scheme, usual = ("https", 443) if self.tls else ("http", 80)
        return f"{scheme}://{url_host(self.host)}" + ("" if self.port == usual else f":{self.port}")


def destination_of(url: str, policy: AddressPolicy, *, allow_http: bool) -> Destination:
    """Parse and check a target URL.

    Raises:
        InvalidEndpoint: not https, has a password or fragment, an invalid host name, or a refused address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        host = canonical_host(parts.hostname or "")
    except (ValueError, InvalidHostname) as error:
        raise InvalidEndpoint(f"This URL can't be used: {error}.") from error
    if parts.scheme not in ("https", "http") or "@" in parts.netloc or parts.fragment:
        raise InvalidEndpoint("A target is an https:// URL, without a password and without a fragment.")
    if parts.scheme == "http" and not allow_http:
        raise InvalidEndpoint(
            "This target is not https: others on the network could read and change the messages.",
            advice="Give an https:// URL. An operator may allow http with CODESDK_WEBHOOK_ALLOW_HTTP.",
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if _PATH.fullmatch(path) is None:
        raise InvalidEndpoint("The URL's path has characters that must be written as %XX.")
    literal = parse_address(host)
    if literal is not None and (why := policy(literal)):
        raise InvalidEndpoint(
            f"Nothing is sent to {literal}: {why}.",
            advice="An operator may allow networks of their own with CODESDK_WEBHOOK_NETWORKS.",
        )
    tls = parts.scheme == "https"
    return Destination(tls=tls, host=host, port=port or (443 if tls else 80), path=path)


def mailbox_of(text: str) -> str:
    """Check a plain mail address.

    Raises:
        InvalidEndpoint: it is not one.
    """
    local, _, domain = text.rpartition("@")
    try:
        if _MAILBOX.fullmatch(local) and "." in domain:
            return f"{local}@{canonical_host(domain)}"
    except InvalidHostname:
        pass
    raise InvalidEndpoint("This is not a plain mail address such as on-call@example.com.")
