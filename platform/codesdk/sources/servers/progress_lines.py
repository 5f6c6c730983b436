"""A server's progress as lines of the call's output, which every watcher of the call sees. Bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue

from codesdk.domain.tool_results import Truncation
from codesdk.sandbox.port import Chunk

MIN_GAP_S = 0.2
"""Least seconds between two lines; what comes sooner is left out."""
MAX_BYTES = 32 * 1024
"""Of all lines of one call."""
_MAX_LINE_CHARS = 300
"""Characters of one line."""


class ProgressLines:
    """Of one call: reported on the event loop, told on the call's own thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = float("-inf")
        self._size = 0
        self._lines: SimpleQueue[Chunk | None] = SimpleQueue()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """What the server said; the client has checked the types."""
        now = self._monotonic()
        if now - self._last < MIN_GAP_S or self._size >= MAX_BYTES:
            return
        self._last = now
        of = f"/{total:g}" if total is not None else ""
        words = " ".join((message or "").split())[:_MAX_LINE_CHARS]
        line = f"[{progress:g}{of}] {words}".rstrip().encode("utf-8", "replace") + b"\n"
        self._lines.put(Chunk(stream="stdout", offset=self._size, data=line))
        self._size += len(line)

    def over(self) -> None:
        """Nothing more comes."""
        self._lines.put(None)

    def lines(self) -> Iterator[Chunk]:
        """Each line as it comes, until it is over."""
        return iter(self._lines.get, None)

    @property
    def counted(self) -> Truncation | None:
        """The accounting of those lines."""
        return Truncation(bytes=self._size, shown=self._size) if self._size else None
