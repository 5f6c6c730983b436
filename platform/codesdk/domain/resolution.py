"""From a host's name to addresses, and which of them are this machine's own."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence

from codesdk.domain.addresses import public_only
from codesdk.domain.hosts import Address

Resolve = Callable[[str], Sequence[Address]]
"""Addresses of a canonical name; OSError where it has none. Called on a thread."""


def system_resolve(name: str) -> list[Address]:
    """What this machine's resolver says, without its search domains."""
    # The final dot: `api.example` must not become `api.example.corp.internal`.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(item[4][0]) for item in found))


def not_this_machine(address: Address) -> str | None:
    """The policy of every process: public, and no address of its own machine, whose services trust it."""
    return public_only(address) or ("an address of this machine" if is_own(address) else None)


def is_own(address: Address) -> bool:
    """Whether it belongs to an interface here: only such an address can be bound to."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    try:
        with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        # Any other error says nothing, and then it is refused.
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
