"""Fetches an issuer's documents: address checked, no redirects, size and time bounded."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import h11

from codesdk.domain.network.addresses import AddressPolicy, allow_networks
from codesdk.domain.network.hostnames import InvalidHostname, canonical_host, url_host
from codesdk.domain.network.resolver import AddressRefused, Resolve, dial
from codesdk.errors import Unavailable
from codesdk.tenancy.logins.issuers import Issuer

DEADLINE_S = 5.0
"""Seconds to fetch one document. A user's first call waits for it."""
MAX_HEAD = 16 * 1024
MAX_BODY = 256 * 1024
"""Maximum bytes of a document. The largest key sets of public issuers have about ten thousand."""

Fetch = Callable[[Issuer, str], dict[str, Any]]
"""Returns the JSON object at an issuer's URL; raises KeysUnavailable. Called on a thread."""


class KeysUnavailable(Unavailable):
    """An issuer's keys can't be fetched, so its tokens can't be verified."""

    code = "LOGIN_KEYS_UNAVAILABLE"


def make_fetch(
    resolve: Resolve, policy: AddressPolicy, monotonic: Callable[[], float], tls: Callable[[], ssl.SSLContext]
) -> Fetch:
    """Build the real `Fetch`. `tls` is called at the first document: loading the system's certificates is slow."""

    def fetch(issuer: Issuer, url: str) -> dict[str, Any]:
        ends = monotonic() + DEADLINE_S

        def left() -> float:
            if (seconds := ends - monotonic()) <= 0:
                raise TimeoutError
            return seconds

        parts = urlsplit(url)
        secure = parts.scheme == "https"
        if not secure and not (issuer.allow_http and parts.scheme == "http"):
            raise _unavailable(issuer, f"{url} is not https")
        allowed = allow_networks(issuer.networks, policy)
        try:
            host = canonical_host(parts.hostname or "")
            port = parts.port or (443 if secure else 80)
            with dial(host, port, resolve, allowed, left=left, tls=tls() if secure else None) as channel:
                content = _get(channel, parts.path or "/", parts.query, f"{url_host(host)}:{port}", left)
        except AddressRefused as refused:
            raise _unavailable(issuer, str(refused)) from refused
        except TimeoutError as error:
            raise _unavailable(issuer, f"{url} did not answer within {DEADLINE_S:g} s") from error
        except (InvalidHostname, OSError, h11.ProtocolError, ValueError) as error:
            raise _unavailable(issuer, f"{url}: {error or type(error).__name__}") from error
        return _json_object(issuer, url, content)

    return fetch


def _get(channel: Any, path: str, query: str, host: str, left: Callable[[], float]) -> bytes:
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    headers = [("host", host), ("accept", "application/json"), ("connection", "close")]
    request = h11.Request(method="GET", target=path + (f"?{query}" if query else ""), headers=headers)
    channel.settimeout(left())
    channel.sendall((protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b""))
    body = bytearray()
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            channel.settimeout(left())
            protocol.receive_data(channel.recv(16 * 1024))
        elif isinstance(event, h11.Response) and event.status_code != 200:  # noqa: PLR2004 (redirects are not followed)
            raise ValueError(f"it answers HTTP {event.status_code}")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                raise ValueError(f"it has more than {MAX_BODY} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif isinstance(event, h11.ConnectionClosed):
            raise ValueError("the connection ended without an answer")


def _json_object(issuer: Issuer, url: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _unavailable(issuer, f"{url} does not return JSON") from error
    if not isinstance(found, dict):
        raise _unavailable(issuer, f"{url} does not return a JSON object")
    return found


def _unavailable(issuer: Issuer, why: str) -> KeysUnavailable:
    return KeysUnavailable(f"The keys of {issuer.issuer} cannot be fetched: {why}.", advice="Try again in a while.")
