"""Stores one exec's output until it is acknowledged: head and tail of each stream."""

from __future__ import annotations

STREAMS = ("stdout", "stderr")
MAX_SEGMENTS = 4096
"""Recorded switches between the streams; after that many, the streams' relative order is lost."""


class Budget:
    """Memory budget shared by all spools of a sandbox."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, wanted: int) -> int:
        """Reserve bytes; returns how many may be kept."""
        granted = max(0, min(wanted, self.limit - self.used))
        self.used += granted
        return granted


class Cursor:
    """A reader's position in each stream."""

    def __init__(self, stdout: int = 0, stderr: int = 0) -> None:
        self.sent = [stdout, stderr]
        self.turn = 0


class Tail:
    """The last bytes of a stream, in a growing ring buffer with a limit."""

    def __init__(self, limit: int, budget: Budget) -> None:
        self._limit = limit
        self._budget = budget
        self._ring = bytearray()
        self._place = 0  # index of the oldest byte once the ring is full

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, data: bytes) -> None:
        """Append bytes; drops the oldest when full."""
        if self._place == 0 and len(self._ring) < self._limit:
            count = self._budget.take(min(len(data), self._limit - len(self._ring)))
            self._ring += data[:count]
            data = data[count:]
        size = len(self._ring)
        if size == 0:
            return
        data = data[-size:]
        end = min(len(data), size - self._place)
        self._ring[self._place : self._place + end] = data[:end]
        self._ring[: len(data) - end] = data[end:]
        self._place = (self._place + len(data)) % size

    def read(self, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`, counted from the oldest byte."""
        size = len(self._ring)
        length = max(0, min(length, size - start))
        if length == 0:
            return b""
        begin = (self._place + start) % size
        part = bytes(self._ring[begin : begin + length])
        return part + bytes(self._ring[: length - len(part)])


class Spool:
    """Output of both streams and the order in which it arrived.

    Keeps the first half of `keep` bytes of each stream and the last half of the rest. The bytes in between are dropped
    and counted. Readers get the head while it grows, and the tail once the stream is over.
    """

    def __init__(self, keep: int, budget: Budget) -> None:
        self._head_limit = keep - keep // 2
        self._budget = budget
        self._heads = (bytearray(), bytearray())
        self._tails = (Tail(keep // 2, budget), Tail(keep // 2, budget))
        self.seen = [0, 0]
        self.over = False
        """Whether the streams are complete; then the tails can be read."""
        self._segments: list[list[int]] = []  # [stream, its length when the other stream's output began]

    def add(self, stream: int, data: bytes) -> None:
        """Append output of a stream."""
        head = self._heads[stream]
        if len(head) == self.seen[stream]:
            count = self._budget.take(min(len(data), self._head_limit - len(head)))
            self._grow(stream, data[:count])
            if count < len(data):
                self._tails[stream].add(data[count:])
        else:
            self._tails[stream].add(data)
        self.seen[stream] += len(data)

    def _grow(self, stream: int, data: bytes) -> None:
        if not data:
            return
        head = self._heads[stream]
        head += data
        for turn in reversed(self._segments[-2:]):
            if turn[0] == stream and (turn is self._segments[-1] or len(self._segments) >= MAX_SEGMENTS):
                turn[1] = len(head)
                return
        self._segments.append([stream, len(head)])

    def after(self, cursor: Cursor, limit: int) -> tuple[int, int, bytes] | None:
        """Return the next bytes after the cursor as (stream, offset, bytes), and advance the cursor."""
        while cursor.turn < len(self._segments):
            stream, end = self._segments[cursor.turn]
            if end > cursor.sent[stream]:
                return self._from_head(cursor, stream, end, limit)
            if cursor.turn + 2 >= len(self._segments):
                # The last two segments may still grow.
                for stream, end in self._segments[-2:]:
                    if end > cursor.sent[stream]:
                        return self._from_head(cursor, stream, end, limit)
                break
            cursor.turn += 1
        return self._from_tails(cursor, limit) if self.over else None

    def _from_head(self, cursor: Cursor, stream: int, end: int, limit: int) -> tuple[int, int, bytes]:
        start = cursor.sent[stream]
        data = bytes(self._heads[stream][start : min(end, start + limit)])
        cursor.sent[stream] += len(data)
        return stream, start, data

    def _from_tails(self, cursor: Cursor, limit: int) -> tuple[int, int, bytes] | None:
        for stream, seen in enumerate(self.seen):
            if cursor.sent[stream] < seen and len(self._tails[stream]):
                offset, data = self.read(stream, cursor.sent[stream], limit)
                if data:
                    cursor.sent[stream] = offset + len(data)
                    return stream, offset, data
        return None

    def read(self, stream: int, offset: int, limit: int) -> tuple[int, bytes]:
        """Return up to `limit` bytes at `offset`, or at the next kept offset, as (offset, bytes)."""
        head, tail = self._heads[stream], self._tails[stream]
        if offset < len(head):
            return offset, bytes(head[offset : offset + limit])
        oldest = self.seen[stream] - len(tail)
        offset = min(max(offset, oldest), self.seen[stream])
        return offset, tail.read(offset - oldest, limit)

    def forget(self, stream: int, offset: int) -> None:
        """Do nothing: read output is kept."""
        del stream, offset

    def room(self, stream: int) -> bool:
        """Return True: excess output is dropped and counted."""
        del stream
        return True

    def counts(self) -> list[tuple[int, int, int]]:
        """Return per stream: bytes seen, bytes dropped, offset of the first dropped byte."""
        return [
            (seen, seen - len(head) - len(tail), len(head))
            for seen, head, tail in zip(self.seen, self._heads, self._tails)
        ]

    def release(self) -> None:
        """Free the memory."""
        self._budget.used -= sum(map(len, self._heads)) + sum(map(len, self._tails))
        self._heads = (bytearray(), bytearray())
        self._tails = (Tail(0, self._budget), Tail(0, self._budget))
        self._segments.clear()


class FlowControlledSpool(Spool):
    """A spool with flow control: stdout blocks until its reader has consumed it; stderr keeps its tail."""

    def __init__(self, keep: int, budget: Budget) -> None:
        super().__init__(keep, budget)
        self._limit = max(1, keep)
        self._waiting = bytearray()
        self._start = 0
        self._tails = (Tail(0, budget), Tail(keep // 2, budget))

    def room(self, stream: int) -> bool:
        """Return whether more can be stored before the reader catches up."""
        return stream != 0 or len(self._waiting) < self._limit

    def add(self, stream: int, data: bytes) -> None:
        """Append output. Keeps all of stdout: the caller checks `room` first."""
        if stream == 0:
            self._waiting += data
            self._budget.used += len(data)
        else:
            self._tails[stream].add(data)
        self.seen[stream] += len(data)

    def forget(self, stream: int, offset: int) -> None:
        """Free stdout before this offset."""
        read = max(0, min(offset - self._start, len(self._waiting))) if stream == 0 else 0
        if read:
            del self._waiting[:read]
            self._start += read
            self._budget.used -= read

    def after(self, cursor: Cursor, limit: int) -> tuple[int, int, bytes] | None:
        """Return None: flow-controlled output is read by offset only."""
        del cursor, limit
        return None

    def read(self, stream: int, offset: int, limit: int) -> tuple[int, bytes]:
        """Return bytes at `offset`, or at the first offset still stored."""
        if stream != 0:
            return super().read(stream, offset, limit)
        start = max(0, min(offset - self._start, len(self._waiting)))
        return self._start + start, bytes(self._waiting[start : start + limit])

    def counts(self) -> list[tuple[int, int, int]]:
        """Return counts as in `Spool`; stdout is never dropped."""
        return [(self.seen[0], 0, 0), (self.seen[1], self.seen[1] - len(self._tails[1]), 0)]

    def release(self) -> None:
        """Free the memory."""
        self._budget.used -= len(self._waiting)
        self._waiting = bytearray()
        super().release()
