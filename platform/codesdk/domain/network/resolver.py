"""Resolves host names, checks the addresses, and connects to them."""

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
"""Returns the addresses of a canonical name; raises OSError if it has none. Called on a thread."""

MAX_ADDRESSES_TRIED = 3
"""Maximum number of a name's addresses that are tried."""


class AddressRefused(Exception):
    """A name has no address, or a forbidden one. The caller turns it into its own error."""

    def __init__(self, detail: str, *, unknown: bool = False) -> None:
        """Create the error. `unknown`: the name doesn't resolve."""
        super().__init__(detail)
        self.unknown = unknown


def system_resolve(name: str) -> list[Address]:
    """Resolve a name with the system's resolver, without search domains."""
    # The final dot prevents that `api.example` becomes `api.example.corp.internal`.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(item[4][0]) for item in found))


def public_and_remote(address: Address) -> str | None:
    """The policy of every process: public addresses, except this machine's own, whose services may trust it."""
    return public_only(address) or ("an address of this machine" if is_local_address(address) else None)


def resolve_checked(host: str, resolve: Resolve, policy: AddressPolicy) -> Sequence[Address]:
    """Return the addresses of a canonical name or address, all of them checked.

    Raises:
        AddressRefused: there is none, or one is refused. A private address among public ones indicates DNS rebinding.
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
    """Connect to a checked address; the name is not resolved a second time.

    `left`: returns the seconds left, or raises TimeoutError.

    Raises:
        AddressRefused: see `resolve_checked`.
        OSError: the connection failed (includes TimeoutError and ssl.SSLError).
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
    """Return whether the address belongs to an interface of this machine: only those can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    try:
        with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        # Any other error is inconclusive, so the address counts as local and is refused.
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
