"""Multiplexes streams over one connection, with per-stream credit and round-robin sending.

No I/O; both sides use the same code. A side may send as many bytes of a stream as the other has granted, and buffers at
most `BUFFER` more. A reader that stops reading stops only its own stream's sender, and memory is bounded by streams
times window. `take` returns control frames first, then one chunk of each stream in turn: a fast stream can't starve a
slow one, and the caller decides how much of the connection they share.

The other side may be hostile. A frame that breaks a rule raises `MuxError`, which ends the channel.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

WINDOW = 256 * 1024
"""Bytes granted per stream and direction: 5 MB/s at a round trip of 50 ms."""
BUFFER = 64 * 1024
"""Unsent bytes buffered per stream."""
CHUNK = 16 * 1024
"""Largest payload of one frame."""
MAX_STREAMS = 32
MAX_LABEL = 1024
_MAX_CONTROL = 1024
"""Queued control frames; an honest peer causes a handful."""
_HISTORY = 4096
"""Late frames of the newest so many stream numbers are ignored; of older ones they are an error."""

OPEN, DATA, CREDIT, FIN, RESET = 1, 2, 3, 4, 5
_HEAD = struct.Struct(">BII")  # kind, stream, length of the payload, or the number itself for CREDIT
_PAYLOAD = {OPEN: MAX_LABEL, DATA: CHUNK}


class MuxError(Exception):
    """The other side broke the protocol."""


class Event:
    """What the other side did to a stream."""

    def __init__(self, stream: int) -> None:
        self.stream = stream


class StreamOpened(Event):
    """The other side opened the stream."""

    def __init__(self, stream: int, label: bytes) -> None:
        super().__init__(stream)
        self.label = label


class DataReceived(Event):
    """Bytes of the stream. Call `consumed` once they are passed on, which grants as many again."""

    def __init__(self, stream: int, data: bytes) -> None:
        super().__init__(stream)
        self.data = data


class StreamEnded(Event):
    """The other side sends no more on this stream; it may still receive."""


class StreamReset(Event):
    """The other side ended the stream at once, in both directions."""


class _Stream:
    def __init__(self) -> None:
        self.waiting = bytearray()
        self.credit = WINDOW
        self.granted = WINDOW  # bytes that the other side may still send
        self.ungranted = 0  # bytes consumed here and not yet granted again
        self.ours_ended = False
        self.fin_sent = False
        self.theirs_ended = False


class Multiplexer:
    """One side of a multiplexed connection."""

    def __init__(self, opener: bool, max_streams: int = MAX_STREAMS) -> None:
        """`opener`: whether this side opens streams; the other side can't."""
        self._opener = opener
        self._max_streams = max_streams
        self._streams: dict[int, _Stream] = {}
        self._newest = 0
        self._control: deque[bytes] = deque()
        self._ready: deque[int] = deque()
        self._input = bytearray()

    # -- sending ----------------------------------------------------------------------------------------------------

    def open(self, label: bytes) -> int | None:
        """Open a stream and return its number, or None if `max_streams` are open."""
        if not self._opener or len(label) > MAX_LABEL:
            raise ValueError("only the opener opens, with a short label")
        if len(self._streams) >= self._max_streams:
            return None
        self._newest += 1
        self._streams[self._newest] = _Stream()
        self._queue_control(OPEN, self._newest, label)
        return self._newest

    def room(self, stream: int) -> int:
        """Return how many bytes `send` accepts now; 0 for a stream that has ended."""
        found = self._streams.get(stream)
        return 0 if found is None or found.ours_ended else BUFFER - len(found.waiting)

    def send(self, stream: int, data: bytes) -> None:
        """Queue bytes for the other side, at most `room`."""
        if len(data) > self.room(stream):
            raise ValueError("more than the stream has room for")
        if not data:
            return
        self._streams[stream].waiting += data
        self._schedule(stream)

    def finish(self, stream: int) -> None:
        """End this side of the stream once its queued bytes are sent."""
        found = self._streams.get(stream)
        if found is not None and not found.ours_ended:
            found.ours_ended = True
            self._schedule(stream)

    def reset(self, stream: int) -> None:
        """End the stream at once, in both directions, and discard queued bytes."""
        if self._streams.pop(stream, None) is not None:
            self._queue_control(RESET, stream)

    def consumed(self, stream: int, count: int) -> None:
        """Record that these bytes were passed on, so that the other side may send as many more."""
        found = self._streams.get(stream)
        if found is None or found.theirs_ended:
            return
        found.ungranted += count
        if found.ungranted >= WINDOW // 4:
            self._control.append(_HEAD.pack(CREDIT, stream, found.ungranted))
            found.granted += found.ungranted
            found.ungranted = 0

    def take(self, limit: int) -> bytes:
        """Return the next frames, at most `limit` bytes; empty if there is nothing to send."""
        out = bytearray()
        while self._control and len(out) + len(self._control[0]) <= limit:
            out += self._control.popleft()
        while not self._control and self._ready and len(out) + 2 * _HEAD.size < limit:
            stream = self._ready.popleft()
            found = self._streams.get(stream)
            if found is not None and self._send_chunk(stream, found, out, limit):
                self._ready.append(stream)
        return bytes(out)

    @property
    def pending(self) -> bool:
        """Whether `take` may have something."""
        return bool(self._control or self._ready)

    def _send_chunk(self, stream: int, found: _Stream, out: bytearray, limit: int) -> bool:
        """Append one chunk of a stream to `out`; returns whether the stream needs another turn."""
        count = min(len(found.waiting), found.credit, CHUNK, limit - len(out) - 2 * _HEAD.size)
        if count > 0:
            out += _HEAD.pack(DATA, stream, count)
            out += found.waiting[:count]
            del found.waiting[:count]
            found.credit -= count
        if found.waiting:
            return found.credit > 0  # without credit, a CREDIT frame schedules it again
        if found.ours_ended and not found.fin_sent:
            found.fin_sent = True
            out += _HEAD.pack(FIN, stream, 0)
            self._remove_if_ended(stream, found)
        return False

    def _remove_if_ended(self, stream: int, found: _Stream) -> None:
        if found.fin_sent and found.theirs_ended:
            del self._streams[stream]

    def _schedule(self, stream: int) -> None:
        if stream not in self._ready:
            self._ready.append(stream)

    def _queue_control(self, kind: int, stream: int, payload: bytes = b"") -> None:
        if len(self._control) >= _MAX_CONTROL:
            raise MuxError("control frames are caused faster than they can be sent")
        self._control.append(_HEAD.pack(kind, stream, len(payload)) + payload)

    # -- receiving --------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events of these bytes.

        Raises:
            MuxError: the other side broke the protocol. Send and feed nothing after that.
        """
        self._input += data
        place = 0
        try:
            while len(self._input) - place >= _HEAD.size:
                kind, stream, number = _HEAD.unpack_from(self._input, place)
                length = 0 if kind == CREDIT else number
                if length > _PAYLOAD.get(kind, 0):
                    raise MuxError("a frame of unknown kind, or too long")
                start = place + _HEAD.size
                if len(self._input) < start + length:
                    break
                payload = bytes(self._input[start : start + length])
                place = start + length
                yield from self._on_frame(kind, stream, number, payload)
        finally:
            del self._input[:place]

    def _on_frame(self, kind: int, stream: int, number: int, payload: bytes) -> Iterator[Event]:
        if kind == OPEN:
            yield from self._on_open(stream, payload)
            return
        found = self._streams.get(stream)
        if found is None:
            if not self._newest - _HISTORY < stream <= self._newest:
                raise MuxError("a frame of an unknown stream")
            return  # sent before the other side got our RESET or FIN
        if kind == DATA:
            yield from self._on_data(stream, found, payload)
        elif kind == CREDIT:
            self._on_credit(stream, found, number)
        elif kind == FIN:
            if found.theirs_ended:
                raise MuxError("a stream finished twice")
            found.theirs_ended = True
            yield StreamEnded(stream)
            self._remove_if_ended(stream, found)
        elif kind == RESET:
            del self._streams[stream]
            yield StreamReset(stream)
        else:
            raise MuxError("a frame of unknown kind")

    def _on_open(self, stream: int, label: bytes) -> Iterator[Event]:
        if self._opener or stream != self._newest + 1:
            raise MuxError("a stream was opened out of turn")
        self._newest = stream
        if len(self._streams) >= self._max_streams:
            self._queue_control(RESET, stream)
            return
        self._streams[stream] = _Stream()
        yield StreamOpened(stream, label)

    def _on_data(self, stream: int, found: _Stream, payload: bytes) -> Iterator[Event]:
        if found.theirs_ended or len(payload) > found.granted:
            raise MuxError("bytes after the end of a stream, or beyond its credit")
        found.granted -= len(payload)
        if payload:
            yield DataReceived(stream, payload)

    def _on_credit(self, stream: int, found: _Stream, count: int) -> None:
        if found.credit + count > WINDOW:
            raise MuxError("more credit than was used")
        found.credit += count
        if found.waiting:
            self._schedule(stream)
