"""The head and the tail of a stream, in bounded memory, with what lies between them counted."""

from __future__ import annotations


class Excerpt:
    """Keeps the first half and the last half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes shown in all."""
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """The next piece of the stream."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_limit:  # trimmed now and then, not for every byte
                del self._tail[: -self._tail_limit]

    @property
    def cut(self) -> bool:
        """Whether anything is left out."""
        return self._total > self.shown

    @property
    def shown(self) -> int:
        """Bytes of the stream that `text` shows."""
        return len(self._head) + min(len(self._tail), self._tail_limit)

    def text(self) -> str:
        """Head, a mark that counts what is missing, tail. Bytes that are no UTF-8 show as U+FFFD."""
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        if not self.cut:
            return bytes(self._head + tail).decode("utf-8", "replace")
        missing = self._total - self.shown
        # A cut inside a character must not invent one: drop the broken edge instead.
        head = bytes(self._head).decode("utf-8", "ignore")
        end = tail.lstrip(_CONTINUATION).decode("utf-8", "replace")
        return f"{head}\n[… {missing} bytes left out; the whole output is in the artifact …]\n{end}"


_CONTINUATION = bytes(range(0x80, 0xC0))
