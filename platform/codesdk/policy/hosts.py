"""The host that an argument names: a URL's, or the argument itself."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import idna

from codesdk.policy.faults import Unevaluable

# Programs disagree about what these mean inside a URL (a backslash is a slash to some); then nobody can say the host.
_DISPUTED = re.compile(r"[\x00-\x20\x7f\\^`{|}<>\"]")


def host_of(text: str) -> str:
    """The host in lower case and ASCII, without port and closing dot.

    Raises:
        Unevaluable: no host can be read from it with certainty.
    """
    if not text or _DISPUTED.search(text):
        raise Unevaluable("names no host that is certain")
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, _ = parts.hostname, parts.port
        if parts.username is not None or not host:
            raise Unevaluable("names no host that is certain")
        return _canonical(host)
    except ValueError as error:
        raise Unevaluable("names no host that is certain") from error


def hosts(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Whether a host fits one of the patterns: itself, or below `*.name`."""
    exact = frozenset(pattern.lower() for pattern in patterns if not pattern.startswith("*."))
    below = tuple(pattern[1:].lower() for pattern in patterns if pattern.startswith("*."))
    return lambda host: "*" in exact or host in exact or host.endswith(below)


def _canonical(host: str) -> str:
    """One spelling for one host: an address in its shortest form, a name in ASCII."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    # What looks like a number in another base (0x7f.1, 2130706433) is an address to some resolvers.
    if re.fullmatch(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", host):
        raise Unevaluable("names its host by a number")
    return idna.encode(host.rstrip("."), uts46=True).decode().lower()
