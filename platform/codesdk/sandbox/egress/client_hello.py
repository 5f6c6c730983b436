"""Parses a TLS ClientHello for its server name, without changing it. Pure.

The message may be fragmented over several records (RFC 8446, 5.1), and is reassembled as the server will.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_HELLO = 64 * 1024
"""Bytes of the largest ClientHello accepted; with post-quantum key shares they have about 2 KiB."""
MAX_RECORD = 1 << 14
_RECORD = struct.Struct(">BBBH")
_HANDSHAKE, _CLIENT_HELLO, _TLS = 22, 1, 3
_RANDOM_BYTES, _MAX_SESSION_ID = 32, 32
_SERVER_NAME, _ALPN = 0, 16
_ENCRYPTED = frozenset({0xFE0D, 0xFFCE})
"""encrypted_client_hello (RFC 9849), and the draft before it (encrypted_server_name)."""


class NotTls(ValueError):
    """The bytes are not a ClientHello, or an ambiguous one."""


@dataclass(frozen=True)
class ClientHello:
    """The visible fields of a ClientHello."""

    server_name: str | None
    encrypted: bool
    """It has an encrypted_client_hello extension, possibly GREASE."""
    alpn: tuple[str, ...] = ()


class ClientHelloParser:
    """Incremental parser. `seen` holds every byte, to be forwarded unchanged."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self._read = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> ClientHello | None:
        """Add bytes; returns the ClientHello once it is complete.

        Raises:
            NotTls: as soon as the bytes can't be a ClientHello.
        """
        self.seen += data
        while len(self.seen) - self._read >= _RECORD.size:
            kind, major, _minor, length = _RECORD.unpack_from(self.seen, self._read)
            if kind != _HANDSHAKE or major != _TLS or not 0 < length <= MAX_RECORD:
                raise NotTls("the first bytes are not a TLS handshake")
            start = self._read + _RECORD.size
            if len(self.seen) < start + length:
                break
            self._message += self.seen[start : start + length]
            self._read = start + length
            hello = self._complete()
            if hello is not None:
                return hello
        if len(self.seen) > MAX_HELLO + MAX_RECORD:
            raise NotTls(f"a ClientHello of more than {MAX_HELLO} bytes")
        if self.seen and self.seen[0] != _HANDSHAKE:
            raise NotTls("the first byte is not a TLS handshake")
        return None

    def _complete(self) -> ClientHello | None:
        message = self._message
        if message[0] != _CLIENT_HELLO:
            raise NotTls("the first handshake message is not a ClientHello")
        if len(message) < 4:  # noqa: PLR2004 - type and a length of three bytes
            return None
        length = int.from_bytes(message[1:4], "big")
        if length > MAX_HELLO:
            raise NotTls(f"a ClientHello of {length} bytes")
        if len(message) < 4 + length:
            return None
        if len(message) > 4 + length:
            raise NotTls("something follows the ClientHello in its record")
        return parse(bytes(message[4:]))


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def take(self, count: int) -> bytes:
        if self._offset + count > len(self._data):
            raise NotTls("a length in the ClientHello reaches beyond its end")
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def vector(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))

    @property
    def at_end(self) -> bool:
        return self._offset == len(self._data)

    def end(self) -> None:
        if not self.at_end:
            raise NotTls("trailing bytes in the ClientHello")


def parse(body: bytes) -> ClientHello:
    """Parse the body of a ClientHello, without its type and length.

    Raises:
        NotTls: a length is wrong, an extension is repeated, or the server name is invalid.
    """
    cursor = _Cursor(body)
    if cursor.take(2)[0] != _TLS:
        raise NotTls("not a TLS version")
    cursor.take(_RANDOM_BYTES)
    if len(cursor.vector(1)) > _MAX_SESSION_ID:
        raise NotTls("a session id of more than 32 bytes")
    suites = cursor.vector(2)
    if not suites or len(suites) % 2 or not cursor.vector(1):
        raise NotTls("no cipher suites, or no compression methods")
    if cursor.at_end:
        return ClientHello(None, encrypted=False)
    extensions = _extensions(cursor.vector(2))
    cursor.end()
    name = _server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else None
    alpn = _protocols(extensions[_ALPN]) if _ALPN in extensions else ()
    return ClientHello(name, encrypted=not _ENCRYPTED.isdisjoint(extensions), alpn=alpn)


def _extensions(data: bytes) -> dict[int, bytes]:
    cursor, found = _Cursor(data), dict[int, bytes]()
    while not cursor.at_end:
        kind = int.from_bytes(cursor.take(2), "big")
        if kind in found:
            raise NotTls("a repeated extension")
        found[kind] = cursor.vector(2)
    return found


def _server_name(data: bytes) -> str:
    cursor = _Cursor(data)
    entry = _Cursor(cursor.vector(2))
    cursor.end()
    if entry.take(1) != b"\0":
        raise NotTls("a server name of an unknown type")
    name = entry.vector(2)
    entry.end()  # servers differ in which of two names they use
    try:
        return name.decode("ascii")
    except UnicodeDecodeError as error:
        raise NotTls("a server name that is not ASCII") from error


def _protocols(data: bytes) -> tuple[str, ...]:
    cursor = _Cursor(data)
    entries, found = _Cursor(cursor.vector(2)), list[str]()
    cursor.end()
    while not entries.at_end:
        found.append(entries.vector(1).decode("ascii", "backslashreplace"))
    return tuple(found)
