"""A command's output on its way through: known by its hash, and its beginning and end kept to be shown."""

from __future__ import annotations

import hashlib

from codesdk.sandbox.port import Chunk, Stream
from codesdk.toolcalls.previews.preview import StreamDigest
from codesdk.tools.command import Excerpt
from codesdk.tools.redacted_output import STREAMS

EXCERPT_BYTES = 8 * 1024
"""Of each stream."""


class OutputDigest:
    """Takes chunks in order, as a bench's `on_output`."""

    def __init__(self) -> None:
        self._hashes = {name: hashlib.sha256() for name in STREAMS}
        self._ends = dict.fromkeys(STREAMS, 0)
        self._excerpts = {name: Excerpt(EXCERPT_BYTES) for name in STREAMS}

    def add(self, chunk: Chunk) -> None:
        """The next piece. What was dropped before it counts as such: another gap is another output."""
        if chunk.offset != self._ends[chunk.stream]:
            self._hashes[chunk.stream].update(f"\0gap to {chunk.offset}\0".encode())
        self._hashes[chunk.stream].update(chunk.data)
        self._ends[chunk.stream] = chunk.offset + len(chunk.data)
        self._excerpts[chunk.stream].add(chunk.data, chunk.offset)

    def digest(self, stream: Stream) -> StreamDigest:
        """The stream so far, as it is compared."""
        return StreamDigest(bytes=self._ends[stream], sha256=f"sha256:{self._hashes[stream].hexdigest()}")

    def text(self, stream: Stream) -> str:
        """As it is shown."""
        return self._excerpts[stream].text(rest="they were not kept")
