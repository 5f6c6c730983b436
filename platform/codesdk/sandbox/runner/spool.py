"""The output of one exec, kept until the worker has committed it."""

from __future__ import annotations

STREAMS = ("stdout", "stderr")
MAX_TURNS = 4096
"""How many changes between the streams are remembered; after that the order between them is no longer exact."""


class Budget:
    """Bytes that all spools of a sandbox may hold together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self, wanted: int) -> int:
        """How many of these bytes may be kept."""
        granted = max(0, min(wanted, self.limit - self.used))
        self.used += granted
        return granted


class Cursor:
    """How far a reader has come in each stream."""

    def __init__(self, stdout: int = 0, stderr: int = 0) -> None:
        self.sent = [stdout, stderr]
        self.turn = 0


class Spool:
    """Two byte strings with the order in which they grew. What does not fit is counted and dropped, never silently."""

    def __init__(self, keep: int, budget: Budget) -> None:
        self._keep = keep
        self._budget = budget
        self._kept = (bytearray(), bytearray())
        self.seen = [0, 0]
        self._turns: list[list[int]] = []  # [stream, end of its bytes when the other stream spoke]

    def add(self, stream: int, data: bytes) -> None:
        """Bytes that came out of a stream."""
        self.seen[stream] += len(data)
        kept = self._kept[stream]
        if len(kept) + len(data) < self.seen[stream]:
            return  # bytes before these were dropped already: a gap in the middle would shift all offsets
        count = self._budget.take(min(len(data), self._keep - len(kept)))
        if count == 0:
            return
        kept += data[:count]
        for turn in reversed(self._turns[-2:]):
            if turn[0] == stream and (turn is self._turns[-1] or len(self._turns) >= MAX_TURNS):
                turn[1] = len(kept)
                return
        self._turns.append([stream, len(kept)])

    def after(self, cursor: Cursor, limit: int) -> tuple[int, int, bytes] | None:
        """The next bytes from the cursor on, which moves past them: (stream, offset, bytes)."""
        while cursor.turn < len(self._turns):
            stream, end = self._turns[cursor.turn]
            start = cursor.sent[stream]
            if end > start:
                data = bytes(self._kept[stream][start : min(end, start + limit)])
                cursor.sent[stream] += len(data)
                return stream, start, data
            if cursor.turn + 2 >= len(self._turns):
                # The last two turns may still grow, each for its stream.
                return self._growing(cursor, limit)
            cursor.turn += 1
        return None

    def _growing(self, cursor: Cursor, limit: int) -> tuple[int, int, bytes] | None:
        for stream, end in self._turns[-2:]:
            start = cursor.sent[stream]
            if end > start:
                data = bytes(self._kept[stream][start : min(end, start + limit)])
                cursor.sent[stream] += len(data)
                return stream, start, data
        return None

    def counts(self) -> list[tuple[int, int]]:
        """For each stream: bytes that came, and bytes of these that were dropped."""
        return [(seen, seen - len(kept)) for seen, kept in zip(self.seen, self._kept)]

    def release(self) -> None:
        """Forget the bytes."""
        self._budget.used -= sum(map(len, self._kept))
        self._kept = (bytearray(), bytearray())
        self._turns.clear()
