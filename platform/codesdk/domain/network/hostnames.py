"""Normalizes host names, address literals and patterns to one spelling, so that comparisons are exact. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

import idna
from pydantic import AfterValidator

MAX_HOSTNAME = 253
"""Maximum length of a host name in text form (RFC 1035, 2.3.4)."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address


class InvalidHostname(ValueError):
    """Not a host name or address, or not in its canonical spelling."""


def canonical_host(text: str) -> str:
    """Return the name in lower case, as A-labels, without the final dot, or the address as `ipaddress` writes it.

    Raises:
        InvalidHostname: an empty or overlong name, an invalid character, an address with a zone or a final dot, or a
            number
            that some resolvers read as an address (`2130706433`, `0x7f.1`, `127.1`, `0177.0.0.1`).
    """
    if text.startswith("[") or ":" in text:
        return str(_parse_ipv6(text))
    whole = _to_ascii(text).lower()
    name = whole.removesuffix(".")
    if not name or len(name) > MAX_HOSTNAME:
        raise InvalidHostname(f"a host name has 1 to {MAX_HOSTNAME} characters")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if name != whole:  # some readers see an address, others a name in the root zone
            raise InvalidHostname("an address has no final dot")
        return str(_parse_ipv4(name))
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise InvalidHostname(f"{label[:70]!r} is not a label of a host name")
        if label.startswith("xn--"):
            _check_a_label(label)
    return name


def parse_address(name: str) -> Address | None:
    """Return the address that a canonical name spells, or None for a host name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def pattern(text: str) -> str:
    """Normalize a host, or `*.` with a name of at least two labels, which matches every name below it but not itself.

    Raises:
        ValueError: it is neither.
    """
    wildcard = text.startswith("*.")
    try:
        name = canonical_host(text.removeprefix("*."))
    except InvalidHostname as error:
        raise ValueError(f"host {text!r}: {error}") from error
    if not wildcard:
        return name
    if parse_address(name) is not None or "." not in name:
        raise ValueError(f"host {text!r}: a wildcard needs a name of at least two labels after it")
    return f"*.{name}"


HostPattern = Annotated[str, AfterValidator(pattern)]


def covers(found: str, host: str) -> bool:
    """Return whether a pattern matches this canonical host, or everything that another pattern matches."""
    if not found.startswith("*."):
        return host == found
    if parse_address(host) is not None:
        return False
    return host == found or (host.removeprefix("*").endswith(found[1:]) and len(host) > len(found) - 1)


def intersect(one: str, other: str) -> str | None:
    """Return the pattern of what both match; None if that is nothing."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def intersect_all(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of what both lists match, in the shortest form."""
    others = tuple(other)
    return drop_covered(found for left in one for right in others if (found := intersect(left, right)) is not None)


def drop_covered(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns without those that another one covers, sorted."""
    found = set(patterns)
    return tuple(sorted(item for item in found if not any(covers(by, item) for by in found - {item})))


def url_host(name: str) -> str:
    """Return a canonical name as written in a URL or a Host header."""
    return f"[{name}]" if ":" in name else name


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidHostname(f"invalid internationalised host name: {error}") from error


def _check_a_label(label: str) -> None:
    try:
        idna.ulabel(label)
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidHostname(f"{label!r} is not an internationalised label: {error}") from error


def _parse_ipv4(name: str) -> IPv4Address:
    try:
        return IPv4Address(name)  # accepts only four decimal numbers without leading zeros
    except ValueError as error:
        raise InvalidHostname(f"{name[:70]!r} can be read as an address in more than one way") from error


def _parse_ipv6(text: str) -> IPv6Address:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in inner:
        raise InvalidHostname("an address with a zone names an interface of this machine")
    try:
        return IPv6Address(inner)
    except ValueError as error:
        raise InvalidHostname(f"{text[:70]!r} is not an IPv6 address") from error
