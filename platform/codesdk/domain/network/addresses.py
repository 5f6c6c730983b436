"""Decides which addresses the egress proxy and the webhook sender refuse, regardless of rules and DNS answers. Pure.

IPv4 follows the IANA special-purpose registry (RFC 6890 and updates) as a blocklist. IPv6 allows only its global block,
minus a blocklist, so newly assigned space is refused until someone reviews it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from codesdk.domain.network.hostnames import Address

AddressPolicy = Callable[[Address], str | None]
"""Returns why an address is refused, or None if connecting is allowed."""

Networks = Sequence[IPv4Network | IPv6Network]

BLOCKED_IPV4 = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier's customers",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local, where clouds answer with metadata",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "IETF protocol assignments",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relays",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarks",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved, and broadcast",
    # Azure's host agent has a public address (learn.microsoft.com: "What is IP address 168.63.129.16").
    "168.63.129.16/32": "metadata of a cloud",
}
GLOBAL_IPV6 = "2000::/3"
BLOCKED_IPV6 = {
    "2001::/23": "IETF protocol assignments, Teredo among them",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4, which holds an IPv4 address",
    "3fff::/20": "documentation",
}
NAT64 = "64:ff9b::/96"
"""The well-known prefix (RFC 6052). On IPv6-only networks every IPv4 host has an address in it."""

_BLOCKED_IPV4 = tuple((IPv4Network(network), why) for network, why in BLOCKED_IPV4.items())
_BLOCKED_IPV6 = tuple((IPv6Network(network), why) for network, why in BLOCKED_IPV6.items())
_GLOBAL_IPV6, _NAT64 = IPv6Network(GLOBAL_IPV6), IPv6Network(NAT64)
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Upper half of an interface identifier whose lower half is an IPv4 address (RFC 5214)."""


def public_only(address: Address) -> str | None:
    """The policy of every installation: allow addresses that are reachable from the whole internet."""
    if isinstance(address, IPv4Address):
        return next((why for network, why in _BLOCKED_IPV4 if address in network), None)
    return _check_ipv6(address)


def allow_networks(networks: Networks, policy: AddressPolicy) -> AddressPolicy:
    """Allow what `policy` allows, and the operator's own networks."""

    def judge(address: Address) -> str | None:
        return None if any(address in network for network in networks) else policy(address)

    return judge


def _check_ipv6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "an address with a zone"
    if address.ipv4_mapped is not None:
        return "an IPv4 address in an IPv6 spelling"
    if address in _NAT64:
        why = public_only(IPv4Address(int(address) & 0xFFFFFFFF))
        return f"NAT64 of an address that is refused: {why}" if why else None
    return _check_global_ipv6(address)


def _check_global_ipv6(address: IPv6Address) -> str | None:
    if address not in _GLOBAL_IPV6:
        return "outside the global block 2000::/3 (loopback, private, link-local, multicast, translated and others)"
    for network, why in _BLOCKED_IPV6:
        if address in network:
            return why
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "ISATAP, which holds an IPv4 address"
    return None
