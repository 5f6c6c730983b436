"""Turns a server's progress notifications into lines of the call's output, rate-limited and bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue

from codesdk.domain.tool_results import Truncation
from codesdk.sandbox.port import Chunk

MIN_GAP_S = 0.2
"""Minimum seconds between two lines; notifications in between are dropped."""
MAX_BYTES = 32 * 1024
"""Bytes of all lines of one call."""
_MAX_LINE_CHARS = 300
"""Characters of one line."""


class ProgressLines:
    """Progress of one call: added on the event loop, read on the call's thread."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = float("-inf")
        self._size = 0
        self._lines: SimpleQueue[Chunk | None] = SimpleQueue()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Add a progress notification."""
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
        """End the iteration of `lines`."""
        self._lines.put(None)

    def lines(self) -> Iterator[Chunk]:
        """Yield each line as it arrives, until `over`."""
        return iter(self._lines.get, None)

    @property
    def counted(self) -> Truncation | None:
        """Size of the lines, for the result; None if there were none."""
        return Truncation(bytes=self._size, shown=self._size) if self._size else None
