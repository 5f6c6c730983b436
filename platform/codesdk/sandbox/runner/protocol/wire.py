"""Frames between worker and runner: format, checksum and resynchronization.

A connection opens with HELLO(nonce, generation) from the worker and an ACK with the same nonce from the runner. Both
sides discard everything before that. A worker that died may have left half a frame in the stream, so `PADDING` precedes
HELLO: zeros that complete any half frame, whose checksum then fails. The nonce keys the checksum, so a frame of another
connection is never accepted.
"""

from __future__ import annotations

import struct
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable, Union

    Header = dict[str, Any]
    Item = Union["Hello", "Ack", "Message", "Oversize"]

FRAGMENT = 64 * 1024
"""Largest payload of a frame. Longer messages are split, so that a cancel waits behind one fragment at most."""
MAX_HEADER = 64 * 1024
MAX_MESSAGE = 80 * 1024 * 1024
"""Largest message that a side assembles; a longer one becomes `Oversize`."""

_MARK = 0xC5
_LAST = 1
_HEAD = struct.Struct(">BBII")  # mark, flags, message, length
_CRC = struct.Struct(">I")
_LEN = struct.Struct(">I")
_HELLO = b"\xc4CSH"
_ACK = b"\xc4CSA"
_GREETING = struct.Struct(">4s16sQB")  # magic, nonce, generation, accepted (0 in a HELLO)
GREETING_BYTES = _GREETING.size + _CRC.size
PADDING = bytes(_HEAD.size + FRAGMENT + _CRC.size)


_SAMPLE = {"a": [1, -2.5, "ä\ud800\n", None, True], "b": {}}


class _Strict:
    """The decoder options that the C scanner reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> float:
        """Reject NaN and Infinity, which aren't JSON."""
        raise ValueError("not JSON: " + name)


def _refuse(value: object) -> object:
    raise TypeError("not JSON: " + type(value).__name__)


# Uses the interpreter's C scanner and encoder directly: the `json` module also loads `re` and `enum`, a megabyte in
# every idle sandbox. An interpreter whose scanner is missing or different falls back to `json`.


def _native_json() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import _json  # noqa: PLC0415 - see above

    scan = _json.make_scanner(_Strict())  # type: ignore[arg-type]
    encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, False)

    def dump(value: Any) -> bytes:
        return "".join(encode(value, 0)).encode("ascii")

    def load(data: bytes) -> Any:
        text = bytes(data).decode("utf-8").strip(" \t\r\n")
        try:
            value, end = scan(text, 0)
        except StopIteration as error:
            raise ValueError("not JSON") from error
        if end != len(text):
            raise ValueError("not JSON: more than one value")
        return value

    if load(dump(_SAMPLE)) != _SAMPLE:
        raise ValueError("an encoder of another kind")
    return dump, load


def _portable_json() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    import json  # noqa: PLC0415 - only where the native one cannot be had

    return lambda value: json.dumps(value, separators=(",", ":")).encode("ascii"), json.loads


try:
    dump_json, load_json = _native_json()
except (ImportError, AttributeError, TypeError, ValueError):
    dump_json, load_json = _portable_json()


class Hello:
    """A worker's greeting: asks to become the runner's worker."""

    def __init__(self, nonce: bytes, generation: int) -> None:
        self.nonce = nonce
        self.generation = generation

    def encode(self) -> bytes:
        """Return padding and greeting."""
        return PADDING + _greeting(_HELLO, self.nonce, self.generation, 0)


class Ack:
    """The runner's answer to HELLO. `generation` is the highest that it has seen."""

    def __init__(self, nonce: bytes, generation: int, accepted: bool) -> None:
        self.nonce = nonce
        self.generation = generation
        self.accepted = accepted

    def encode(self) -> bytes:
        """Return the greeting."""
        return _greeting(_ACK, self.nonce, self.generation, int(self.accepted))


class Message:
    """One message: a small JSON header and raw bytes."""

    def __init__(self, number: int, header: Header, body: bytes) -> None:
        self.number = number
        self.header = header
        self.body = body


class Oversize:
    """A message longer than `MAX_MESSAGE`; its content was discarded."""

    def __init__(self, number: int) -> None:
        self.number = number


class Malformed(Exception):
    """The checksum matches, but the bytes aren't a valid message."""


def _greeting(magic: bytes, nonce: bytes, generation: int, accepted: int) -> bytes:
    body = _GREETING.pack(magic, nonce, generation, accepted)
    return body + _CRC.pack(zlib.crc32(body))


def encode(nonce: bytes, number: int, header: Header, body: bytes = b"") -> Iterator[bytes]:
    """Yield the frames of one message."""
    text = dump_json(header)
    payload = memoryview(_LEN.pack(len(text)) + text + body)
    key = zlib.crc32(nonce)
    for start in range(0, len(payload), FRAGMENT):
        part = payload[start : start + FRAGMENT]
        head = _HEAD.pack(_MARK, _LAST if start + FRAGMENT >= len(payload) else 0, number, len(part))
        yield b"".join((head, part, _CRC.pack(zlib.crc32(part, zlib.crc32(head, key)))))


class Decoder:
    """Turns bytes into items. Accepts any bytes and skips those that make no sense."""

    def __init__(self, sought: bytes | None = None) -> None:
        """`sought`: the nonce of the ACK that a worker waits for; None for a runner, which waits for a HELLO."""
        self._sought = _HELLO if sought is None else _ACK + sought
        self._key: int | None = None
        self._searching = True
        self._buffer = bytearray()
        self._parts: dict[int, list[bytes]] = {}
        self._buffered = 0
        self._refused: dict[int, bool] = {}

    def accept(self, nonce: bytes) -> None:
        """Read frames keyed by this nonce from here on, and discard partly read messages."""
        self._key = zlib.crc32(nonce)
        self._searching = False
        self._parts.clear()
        self._refused.clear()
        self._buffered = 0

    def feed(self, data: bytes) -> Iterator[Item]:
        """Yield the items that these bytes complete. After a greeting, call `accept` before taking the next item."""
        self._buffer += data
        while True:
            item, go_on = self._find_greeting() if self._searching else self._next_item()
            if item is not None:
                yield item
            if not go_on:
                return

    def _find_greeting(self) -> tuple[Item | None, bool]:
        found = self._buffer.find(self._sought)
        if found < 0:
            del self._buffer[: max(0, len(self._buffer) - len(self._sought) + 1)]
            return None, False
        del self._buffer[:found]
        if len(self._buffer) < GREETING_BYTES:
            return None, False
        item = self._take_greeting()
        if item is None:
            del self._buffer[:1]
        return item, True

    def _take_greeting(self) -> Item | None:
        raw = bytes(self._buffer[:GREETING_BYTES])
        body, (crc,) = raw[: _GREETING.size], _CRC.unpack(raw[_GREETING.size :])
        magic, nonce, generation, accepted = _GREETING.unpack(body)
        if crc != zlib.crc32(body) or magic not in (_HELLO, _ACK):
            return None
        del self._buffer[:GREETING_BYTES]
        return Hello(nonce, generation) if magic == _HELLO else Ack(nonce, generation, bool(accepted))

    def _next_item(self) -> tuple[Item | None, bool]:
        buffer = self._buffer
        if buffer[:1] == b"\0":
            kept = buffer.lstrip(b"\0")
            del buffer[: len(buffer) - len(kept)]
        if not buffer:
            return None, False
        if buffer[0] == _MARK:
            return self._frame()
        if buffer[0] == _HELLO[0]:
            if len(buffer) < GREETING_BYTES:
                return None, False
            item = self._take_greeting()
            self._searching = item is None
            return item, True
        self._searching = True
        return None, True

    def _frame(self) -> tuple[Item | None, bool]:
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None, False
        _, flags, number, length = _HEAD.unpack_from(buffer)
        if length > FRAGMENT or flags > _LAST:
            self._searching = True
            return None, True
        end = _HEAD.size + length
        if len(buffer) < end + _CRC.size:
            return None, False
        (crc,) = _CRC.unpack_from(buffer, end)
        framed = bytes(buffer[:end])
        del buffer[: end + _CRC.size]
        if crc != zlib.crc32(framed, self._key or 0):
            return None, True
        return self._collect(number, framed[_HEAD.size :], bool(flags & _LAST)), True

    def _collect(self, number: int, part: bytes, last: bool) -> Item | None:
        if number in self._refused:
            if last:
                del self._refused[number]
            return None
        parts = self._parts.setdefault(number, [])
        parts.append(part)
        self._buffered += len(part)
        if self._buffered > MAX_MESSAGE:
            self._buffered -= sum(map(len, self._parts.pop(number)))
            if not last:
                self._refused[number] = True
            return Oversize(number)
        if not last:
            return None
        payload = b"".join(self._parts.pop(number))
        self._buffered -= len(payload)
        return _parse(number, payload)


def _parse(number: int, payload: bytes) -> Message:
    if len(payload) < _LEN.size:
        raise Malformed("a message without a header")
    (length,) = _LEN.unpack_from(payload)
    if length > MAX_HEADER or _LEN.size + length > len(payload):
        raise Malformed("a header longer than its message or than 64 KiB")
    try:
        header = load_json(payload[_LEN.size : _LEN.size + length])
    except (ValueError, RecursionError) as error:
        raise Malformed("a header that is not JSON") from error
    if not isinstance(header, dict):
        raise Malformed("a header that is not an object")
    return Message(number, header, payload[_LEN.size + length :])
