"""From a host's name to addresses, and which of them are this machine's own."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence

from codesdk.domain.network.addresses import AddressPolicy, public_only
from codesdk.domain.network.hostnames import Address, parse_address

Resolve = Callable[[str], Sequence[Address]]
"""Addresses of a canonical name; OSError where it has none. Called on a thread."""

MAX_ADDRESSES_TRIED = 3
"""Addresses of a name that are tried."""


class AddressRefused(Exception):
    """A name has no address, or one that is not connected to; the caller turns it into its own words."""

    def __init__(self, detail: str, *, unknown: bool = False) -> None:
        """`unknown`: there is no such name."""
        super().__init__(detail)
        self.unknown = unknown


def system_resolve(name: str) -> list[Address]:
    """What this machine's resolver says, without its search domains."""
    # The final dot: `api.example` must not become `api.example.corp.internal`.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(item[4][0]) for item in found))


def public_and_remote(address: Address) -> str | None:
    """The policy of every process: public, and no address of its own machine, whose services trust it."""
    return public_only(address) or ("an address of this machine" if is_local_address(address) else None)


def resolve_checked(host: str, resolve: Resolve, policy: AddressPolicy) -> Sequence[Address]:
    """The addresses of a canonical name or address, every one of them checked.

    Raises:
        Refused: there is none, or one is refused: one private answer among public ones is what a rebinding name looks like.
    """
    literal = parse_address(host)
    try:
        found = (literal,) if literal is not None else tuple(resolve(host))
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} cannot be resolved", unknown=True) from error
    for address in found:
        if why := policy(address):
            raise AddressRefused(f"{host} leads to {address}: {why}")
    return found


def dial(
    host: str,
    port: int,
    resolve: Resolve,
    policy: AddressPolicy,
    *,
    left: Callable[[], float],
    tls: ssl.SSLContext | None,
) -> socket.socket:
    """A connection to an address that was checked; nothing resolves the name a second time.

    `left`: seconds that are left, or TimeoutError.

    Raises:
        Refused: see `resolve_checked`.
        OSError: nothing answers there (TimeoutError, ssl.SSLError among them).
    """
    error: OSError = OSError("the name has no address")
    for address in resolve_checked(host, resolve, policy)[:MAX_ADDRESSES_TRIED]:
        made = socket.socket(
            socket.AF_INET if address.version == 4 else socket.AF_INET6,  # noqa: PLR2004 - IP versions
            socket.SOCK_STREAM,
        )
        try:
            made.settimeout(left())
            made.connect((str(address), port))
            return made if tls is None else tls.wrap_socket(made, server_hostname=host)
        except ssl.SSLError:
            made.close()
            raise
        except OSError as unreachable:
            made.close()
            error = unreachable
    raise error


def is_local_address(address: Address) -> bool:
    """Whether it belongs to an interface here: only such an address can be bound to."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    try:
        with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        # Any other error says nothing, and then it is refused.
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
