"""The host that an argument names: a URL's, or the argument itself. One spelling of hosts serves policy and egress."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from codesdk.domain.network.hostnames import InvalidHostname, canonical_host, covers
from codesdk.policy.faults import Unevaluable

ANY = "*"
# Programs disagree about what these mean inside a URL (a backslash is a slash to some); then nobody can say the host.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\^`{|}<>\"]")


def host_of(text: str) -> str:
    """The host in its canonical spelling, without port and closing dot.

    Raises:
        Unevaluable: no host can be read from it with certainty.
    """
    if not text or _AMBIGUOUS.search(text):
        raise Unevaluable("names no host that is certain")
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, _ = parts.hostname, parts.port
        if parts.username is not None or not host:
            raise Unevaluable("names no host that is certain")
        return canonical_host(host)
    except InvalidHostname as error:
        raise Unevaluable(f"names no host that is certain: {error}") from error
    except ValueError as error:
        raise Unevaluable("names no host that is certain") from error


def host_pattern(text: str) -> str:
    """A host, `*.` and a name for every host beneath it, or `*` for any, in its canonical spelling.

    Unlike in an egress list one label is enough behind the wildcard: a rule may deny a whole `*.zone`.

    Raises:
        ValueError: it is none.
    """
    if text == ANY:
        return text
    wildcard = "*." if text.startswith("*.") else ""
    try:
        return wildcard + canonical_host(text.removeprefix("*."))
    except InvalidHostname as error:
        raise ValueError(f"host {text!r}: {error}") from error


def host_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a canonical host fits one of the canonical patterns: itself, or beneath `*.name`."""
    exact = frozenset(patterns)
    below = tuple(pattern for pattern in patterns if pattern.startswith("*."))
    return lambda host: ANY in exact or host in exact or any(covers(pattern, host) for pattern in below)
