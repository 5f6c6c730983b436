"""A command's output on its way into the log."""

from __future__ import annotations

import codecs
import logging

from codesdk.domain.clock import Clock
from codesdk.eventlog.log import EncodedEvent, EventDraft, EventLog
from codesdk.sandbox.port import Chunk, Stream
from codesdk.storage.database import StorageUnavailable
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.tools import Attachment

_log = logging.getLogger(__name__)

DELTA_S = 0.1
"""Seconds of output gathered into one event: fast enough to watch, few enough commits."""
DELTA_BYTES = 16 * 1024
DELTA_CHARACTERS = 32 * 1024
"""Most characters of one event. JSON makes up to six bytes of each (of a NUL, say), and the log takes 256 KiB."""


class OutputLog:
    """A command's output on its way into the log: gathered by time and size, decoded per stream."""

    def __init__(self, claimed: ClaimedCall, log: EventLog, writer: Writer, clock: Clock) -> None:
        self._claimed = claimed
        self._log = log
        self._writer = writer
        self._clock = clock
        self._whole: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._ends = {"stdout": 0, "stderr": 0}
        self._gaps: dict[str, tuple[int, int, int]] = {}
        # One incremental decoder per stream: a stderr chunk between two halves of a character must not break it.
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._whole}
        self._pending: list[tuple[Stream, int, str]] = []
        self._pending_bytes = 0
        self._since = clock.monotonic()
        self.attached: list[Attachment] = []
        """What the tool itself wants kept."""

    def add(self, chunk: Chunk) -> None:
        """The next piece; writes an event when enough has gathered."""
        end = self._ends[chunk.stream]
        if chunk.offset > end:
            # Only the beginning and the end were kept: what follows has an offset of its own.
            self._gaps[chunk.stream] = (len(self._whole[chunk.stream]), end, chunk.offset - end)
            self._gather(chunk.stream, end, b"", final=True)
            self._pending.append((chunk.stream, chunk.offset, ""))
        self._ends[chunk.stream] = chunk.offset + len(chunk.data)
        self._whole[chunk.stream].append(chunk.data)
        for start in range(0, len(chunk.data), DELTA_BYTES):
            self._gather(chunk.stream, chunk.offset + start, chunk.data[start : start + DELTA_BYTES])
        self._pending_bytes += len(chunk.data)
        if self._pending_bytes < DELTA_BYTES and self._clock.monotonic() - self._since < DELTA_S:
            return
        self._since = self._clock.monotonic()
        drafts = tuple(map(self._log.encode, self._drafts()))
        try:
            self._writer.run(lambda unit: self._append(unit, drafts))
        except StorageUnavailable as fault:
            # The command runs on whatever the database does: the text stays pending, and the end needs it anyway.
            _log.warning("output of call %s waits: %s", self._claimed.stored.identity.tool_call_id, fault)
        else:
            self._pending, self._pending_bytes = [], 0

    def rest(self) -> tuple[EventDraft, ...]:
        """What has not been written yet, for the unit that ends the call."""
        for name in ("stdout", "stderr"):
            self._gather(name, self._ends[name], b"", final=True)
        return self._drafts()

    def whole(self, stream: str, total: int) -> bytes:
        """A stream of `total` bytes as it came, byte for byte; with a mark where some were dropped."""
        pieces, end = self._whole[stream], self._ends[stream]
        place, offset, dropped = self._gaps.get(stream, (len(pieces), end, total - end))
        if not dropped:
            return b"".join(pieces)
        return b"".join((*pieces[:place], gap_mark(offset, dropped, total), *pieces[place:]))

    def _gather(self, stream: Stream, offset: int, data: bytes, *, final: bool = False) -> None:
        decoder = self._decoders[stream]
        offset -= len(decoder.getstate()[0])  # a character begun in an earlier chunk begins there
        text = decoder.decode(data, final)
        if not text:
            return
        last, first, before = self._pending[-1] if self._pending else ("", 0, "")
        if last == stream and len(before) + len(text) <= DELTA_CHARACTERS:
            self._pending[-1] = (stream, first, before + text)
        else:
            self._pending.append((stream, offset, text))

    def _append(self, unit: Unit, drafts: tuple[EncodedEvent, ...]) -> None:
        store.check_owned(unit.connection, self._claimed.stored.identity, self._claimed.generation)
        for draft in drafts:
            self._log.append(unit, draft)

    def _drafts(self) -> tuple[EventDraft, ...]:
        stored = self._claimed.stored
        return tuple(
            call_events.output_delta(stored.call, stored.subject, stream, offset, text)
            for stream, offset, text in self._pending
        )


def gap_mark(offset: int, dropped: int, total: int) -> bytes:
    """What a kept stream has in place of the bytes that passed the profile's limit.

    A program can print the same words. The result's `gap` and `dropped` say where ours stands, and none stands elsewhere.
    """
    words = f"{dropped} of {total} bytes were dropped here, from byte {offset} to byte {offset + dropped}"
    return f"\n[codesdk: {words}; the profile's keep_output_bytes keeps no more]\n".encode()
