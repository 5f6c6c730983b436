"""A command's output on its way through: known by its hash, and its beginning and end kept to be shown."""

from __future__ import annotations

import hashlib

from codesdk.sandbox.port import Chunk, Stream
from codesdk.toolcalls.builtins.excerpt import Excerpt
from codesdk.toolcalls.builtins.withheld import STREAMS
from codesdk.toolcalls.preview import StreamMark

SHOWN_BYTES = 8 * 1024
"""Of each stream."""


class Heard:
    """Takes chunks in order, as a bench's `on_output`."""

    def __init__(self) -> None:
        self._hashes = {name: hashlib.sha256() for name in STREAMS}
        self._ends = dict.fromkeys(STREAMS, 0)
        self._excerpts = {name: Excerpt(SHOWN_BYTES) for name in STREAMS}

    def add(self, chunk: Chunk) -> None:
        """The next piece. What was dropped before it counts as such: another gap is another output."""
        if chunk.offset != self._ends[chunk.stream]:
            self._hashes[chunk.stream].update(f"\0gap to {chunk.offset}\0".encode())
        self._hashes[chunk.stream].update(chunk.data)
        self._ends[chunk.stream] = chunk.offset + len(chunk.data)
        self._excerpts[chunk.stream].add(chunk.data, chunk.offset)

    def mark(self, stream: Stream) -> StreamMark:
        """The stream so far, as it is compared."""
        return StreamMark(bytes=self._ends[stream], sha256=f"sha256:{self._hashes[stream].hexdigest()}")

    def text(self, stream: Stream) -> str:
        """As it is shown."""
        return self._excerpts[stream].text(rest="they were not kept")
