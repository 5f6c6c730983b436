"""Host names, address literals and patterns of them in one spelling, so that what is compared is what is meant. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

import idna
from pydantic import AfterValidator

MAX_HOSTNAME = 253
"""Longest host name in text form (RFC 1035, 2.3.4)."""

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address


class InvalidHostname(ValueError):
    """It is neither a host name nor an address in its one canonical spelling."""


def canonical_host(text: str) -> str:
    """The name in lower case, as A-labels, without the final dot; an address as `ipaddress` writes it, in brackets or not.

    Raises:
        BadName: an empty or overlong name, a character that no host name has, an address with a zone or a final dot, or
            a number that some resolvers read as an address (`2130706433`, `0x7f.1`, `127.1`, `0177.0.0.1`).
    """
    if text.startswith("[") or ":" in text:
        return str(_parse_ipv6(text))
    whole = _to_ascii(text).lower()
    name = whole.removesuffix(".")
    if not name or len(name) > MAX_HOSTNAME:
        raise InvalidHostname(f"a host name has 1 to {MAX_HOSTNAME} characters")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        if name != whole:  # to some readers an address, to others a name in the zone of the root
            raise InvalidHostname("an address has no final dot")
        return str(_parse_ipv4(name))
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise InvalidHostname(f"{label[:70]!r} is no label of a host name")
        if label.startswith("xn--"):
            _check_a_label(label)
    return name


def parse_address(name: str) -> Address | None:
    """The address that a canonical name spells, or None where it is a host name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def pattern(text: str) -> str:
    """A host, or `*.` and a name of at least two labels, which stands for every name beneath it but not itself.

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
        raise ValueError(f"host {text!r}: a wildcard stands before a name of at least two labels")
    return f"*.{name}"


HostPattern = Annotated[str, AfterValidator(pattern)]


def covers(found: str, host: str) -> bool:
    """Whether a pattern stands for this canonical host, or for all that another pattern stands for."""
    if not found.startswith("*."):
        return host == found
    if parse_address(host) is not None:
        return False
    return host == found or (host.removeprefix("*").endswith(found[1:]) and len(host) > len(found) - 1)


def intersect(one: str, other: str) -> str | None:
    """The pattern of what both stand for; None where that is nothing."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def intersect_all(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    """What both lists of patterns stand for, in its one shortest form."""
    others = tuple(other)
    return drop_covered(found for left in one for right in others if (found := intersect(left, right)) is not None)


def drop_covered(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns without those that another one covers, sorted."""
    found = set(patterns)
    return tuple(sorted(item for item in found if not any(covers(by, item) for by in found - {item})))


def url_host(name: str) -> str:
    """A canonical name as it stands in a URL or a Host header."""
    return f"[{name}]" if ":" in name else name


def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidHostname(f"no internationalised host name: {error}") from error


def _check_a_label(label: str) -> None:
    try:
        idna.ulabel(label)
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidHostname(f"{label!r} stands for no internationalised label: {error}") from error


def _parse_ipv4(name: str) -> IPv4Address:
    try:
        return IPv4Address(name)  # four decimal numbers without leading zeros, nothing else
    except ValueError as error:
        raise InvalidHostname(f"{name[:70]!r} can be read as an address in more than one way") from error


def _parse_ipv6(text: str) -> IPv6Address:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in inner:
        raise InvalidHostname("an address with a zone names an interface of this machine")
    try:
        return IPv6Address(inner)
    except ValueError as error:
        raise InvalidHostname(f"{text[:70]!r} is no IPv6 address") from error
