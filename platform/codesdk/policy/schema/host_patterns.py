"""Reads the host of a URL or a bare host. Policy and egress use the same canonical form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from codesdk.domain.network.hostnames import InvalidHostname, canonical_host, covers
from codesdk.policy.faults import Unevaluable

ANY = "*"
# Programs interpret these differently inside a URL (some read a backslash as a slash), so the host is ambiguous.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\^`{|}<>\"]")


def host_of(text: str) -> str:
    """Return the canonical host, without port and trailing dot.

    Raises:
        Unevaluable: the host is missing or ambiguous.
    """
    if not text or _AMBIGUOUS.search(text):
        raise Unevaluable("is not a valid host")
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, _ = parts.hostname, parts.port
        if parts.username is not None or not host:
            raise Unevaluable("is not a valid host")
        return canonical_host(host)
    except InvalidHostname as error:
        raise Unevaluable(f"is not a valid host: {error}") from error
    except ValueError as error:
        raise Unevaluable("is not a valid host") from error


def host_pattern(text: str) -> str:
    """Return the canonical form of a host, `*.name` for every host below a name, or `*` for any host.

    Unlike in an egress list, one label after the wildcard is enough: a rule may deny a whole zone, `*.zone`.

    Raises:
        ValueError: the text is not a host pattern.
    """
    if text == ANY:
        return text
    wildcard = "*." if text.startswith("*.") else ""
    try:
        return wildcard + canonical_host(text.removeprefix("*."))
    except InvalidHostname as error:
        raise ValueError(f"host {text!r}: {error}") from error


def host_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a canonical host matches one of the canonical patterns."""
    exact = frozenset(patterns)
    below = tuple(pattern for pattern in patterns if pattern.startswith("*."))
    return lambda host: ANY in exact or host in exact or any(covers(pattern, host) for pattern in below)
