"""The head and the tail of a stream, in bounded memory, with what lies between them counted."""

from __future__ import annotations

import codecs


class Excerpt:
    """Keeps the first half and the last half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes shown in all."""
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._dropped = 0

    def add(self, data: bytes, offset: int | None = None) -> None:
        """The next piece of the stream, and where in the stream it begins: right after the last where None."""
        if offset is not None:
            self.end(offset)
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_limit:  # trimmed now and then, not for every byte
                del self._tail[: -self._tail_limit]

    def end(self, total: int) -> None:
        """The stream had so many bytes up to here. What did not come was dropped: it is never bridged in silence."""
        if total <= self._total:
            return
        self._dropped += total - self._total
        self._total = total
        self._head_limit = len(self._head)  # what follows is shown as the tail, and nothing from before it is
        self._tail.clear()

    @property
    def cut(self) -> bool:
        """Whether anything is left out."""
        return self._total > len(self._head) + min(len(self._tail), self._tail_limit)

    @property
    def shown(self) -> int:
        """Bytes of the stream that `text` shows."""
        return sum(map(len, self._parts()))

    def text(self, rest: str = "the whole output is in the artifact") -> str:
        """Head, a mark that counts what is missing, tail. Bytes that are no UTF-8 show as U+FFFD.

        `rest`: where what is left out can be found.
        """
        head, tail = self._parts()
        if not self.cut:
            return (head + tail).decode("utf-8", "replace")
        missing = self._total - len(head) - len(tail)
        where = rest
        if self._dropped:
            where = f"{self._dropped} of them were too many to keep and are lost, the rest is in the artifact"
        mark = f"[… {missing} bytes left out; {where} …]"
        return f"{head.decode('utf-8', 'replace')}\n{mark}\n{tail.decode('utf-8', 'replace')}"

    def _parts(self) -> tuple[bytes, bytes]:
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
        if not self.cut:
            return head, tail
        # A cut inside a character must not invent one: its pieces go to what is left out.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(head)
        begun = len(decoder.getstate()[0])
        edge = next((at for at, byte in enumerate(tail[:_MAX_CHARACTER_BYTES]) if byte not in _CONTINUATION), 0)
        return head[: len(head) - begun], tail[edge:]


_CONTINUATION = range(0x80, 0xC0)
_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest UTF-8 character: continuation bytes beyond that are no piece of one, and are shown."""
