"""A command's output on its way into the log."""

from __future__ import annotations

import codecs
import json
import logging
import math
import threading

from codesdk.artifacts import StoredArtifact
from codesdk.domain.byte_rate import NO_BYTE_RATE, ByteBuckets
from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.eventlog.log import EVENT_BYTES, EncodedEvent, EventDraft, EventLog
from codesdk.sandbox.port import Chunk, Stream
from codesdk.storage.database import StorageUnavailable
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.tools import Attachment

_log = logging.getLogger(__name__)

DELTA_S = 0.1
"""Seconds of output gathered into one event: fast enough to watch, few enough commits."""
RETRY_S = 1.0
"""Seconds until output that the database did not accept is written again, if the command prints nothing meanwhile."""
DELTA_BYTES = 16 * 1024
DELTA_CHARACTERS = 32 * 1024
"""Most characters of one event. JSON makes up to six bytes of each (of a NUL, say), and the log takes 256 KiB."""


class FlushTimer:
    """Writes the output of commands that have stopped printing: one thread for all calls, which sleeps if none is due.

    While a command prints, its call's own thread writes its output. So this thread has little to do under load, and a slow
    commit delays only the output of other commands that have stopped printing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[OutputLog, float] = {}
        self._wakes_at = math.inf
        """When the thread checks again. It is not woken for output that is due later, so short calls cost no wake-up."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="codesdk-output", daemon=True)

    def start(self) -> None:
        """Start the thread. Call once; without it, call `run_due`."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. The end of each call writes what is left of its output."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def schedule(self, output: OutputLog, at: float) -> None:
        """Flush `output` at that time, on the monotonic clock. Replaces an earlier time."""
        with self._changed:
            self._due[output] = at
            if at < self._wakes_at:
                self._wakes_at = at
                self._changed.notify()

    def cancel(self, output: OutputLog) -> None:
        """Don't flush `output`."""
        with self._changed:
            self._due.pop(output, None)

    def run_due(self) -> None:
        """Flush everything that is due."""
        now = self._clock.monotonic()
        with self._changed:
            due = [output for output, at in self._due.items() if at <= now]
            for output in due:
                del self._due[output]
        for output in due:
            try:
                output.flush()
            except Exception:  # noqa: BLE001 (a defect in one call must not hold back the others' output)
                _log.exception("output was not written ahead; the end of its call writes it")

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                self._wakes_at = min(self._due.values(), default=math.inf)
                left = self._wakes_at - self._clock.monotonic()
                if left > 0:
                    self._changed.wait(None if math.isinf(left) else left)
            self.run_due()


class OutputLog:
    """A command's output on its way into the log: gathered by time and size, decoded per stream.

    Output that has gathered is written `DELTA_S` after the last event, whether the command prints more or not.
    """

    def __init__(
        self,
        claimed: ClaimedCall,
        log: EventLog,
        writer: Writer,
        clock: Clock,
        *,
        timer: FlushTimer | None = None,
        rate: ByteBuckets | None = None,
    ) -> None:
        """`timer`: writes the output of a command that has stopped printing. Without one, that waits for more or the end.

        `rate`: by session. Output beyond it is left out of the log, as its offsets show; the artifact has it.
        """
        self._rate = rate or ByteBuckets(NO_BYTE_RATE, clock)
        self._claimed = claimed
        self._log = log
        self._writer = writer
        self._clock = clock
        self._timer = timer or FlushTimer(clock)
        self._lock = threading.Lock()  # held during a commit, so that no other thread writes the same text
        self._closed = False
        self._whole: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._ends = {"stdout": 0, "stderr": 0}
        self._gaps: dict[str, tuple[int, int, int]] = {}
        # One incremental decoder per stream: a stderr chunk between two halves of a character must not break it.
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._whole}
        self._pending: list[tuple[Stream, int, str]] = []
        self._pending_bytes = 0
        # Not at once for the first output: most calls end sooner, and then need no commit of their own for it.
        self._since = clock.monotonic()
        self._refused = False
        self._is_left_out = False
        self._rest: tuple[EventDraft, ...] | None = None
        self.attached: list[Attachment] = []
        """What the tool itself wants kept."""
        self.stored: list[StoredArtifact] = []
        """Likewise, and its bytes are stored already."""

    def add(self, chunk: Chunk) -> None:
        """The next piece; writes an event when enough has gathered.

        Raises:
            IllegalTransition: a newer worker took the call over.
        """
        with self._lock:
            self._collect(chunk)
            if self._pending_bytes >= DELTA_BYTES or self._clock.monotonic() - self._since >= DELTA_S:
                self._write()
            elif self._pending:
                self._timer.schedule(self, self._since + DELTA_S)

    def flush(self) -> None:
        """Write what waits, for the timer; nothing after `close` or `rest`."""
        with self._lock:
            if self._closed:
                return
            try:
                self._write()
            except Fault as fault:  # a newer worker has the call, or this one stops: the call's thread meets it, too
                call = self._claimed.stored.identity.tool_call_id
                _log.info("output of call %s is not written ahead: %s", call, fault)

    def rest(self) -> tuple[EventDraft, ...]:
        """What has not been written yet, for the unit that ends the call. No event is written after this."""
        self.close()
        if self._rest is None:  # asked again where the end could not be recorded
            for name in ("stdout", "stderr"):
                self._gather(name, self._ends[name], b"", final=True)
            self._rest = self._drafts() if self._is_within_rate() else ()
        return self._rest

    def close(self) -> None:
        """Write no more events. Waits for the event that is being written."""
        with self._lock:
            self._closed = True
        self._timer.cancel(self)

    def whole(self, stream: str, total: int) -> bytes:
        """A stream of `total` bytes as it came, byte for byte; with a mark where some were dropped."""
        pieces, end = self._whole[stream], self._ends[stream]
        place, offset, dropped = self._gaps.get(stream, (len(pieces), end, total - end))
        if not dropped:
            return b"".join(pieces)
        return b"".join((*pieces[:place], gap_mark(offset, dropped, total), *pieces[place:]))

    def _collect(self, chunk: Chunk) -> None:
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

    def _write(self) -> None:
        """Write an event of each pending text. If the database is away, they stay pending.

        Raises:
            IllegalTransition: a newer worker took the call over.
        """
        if not self._pending:
            return
        self._since = self._clock.monotonic()
        if not self._is_within_rate():
            self._pending, self._pending_bytes = [], 0
            return
        drafts = tuple(map(self._log.encode, self._drafts()))
        try:
            self._writer.run(lambda unit: self._append(unit, drafts))
        except StorageUnavailable as fault:
            # The command runs on whatever the database does: the text stays pending, and the end needs it anyway.
            if not self._refused:
                _log.warning("output of call %s waits: %s", self._claimed.stored.identity.tool_call_id, fault)
            self._refused = True
            self._timer.schedule(self, self._since + RETRY_S)
        else:
            self._pending, self._pending_bytes, self._refused = [], 0, False

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

    def _is_within_rate(self) -> bool:
        """Take the size of the pending output, as JSON, from the session's rate. False: the output is left out of the log."""
        if not self._pending:
            return True
        texts = (json.dumps(text, ensure_ascii=False) for _, _, text in self._pending)
        size = sum(len(text.encode()) + EVENT_BYTES for text in texts)
        session = self._claimed.stored.subject.session_id
        if self._rate.take(session, size):
            return True
        if not self._is_left_out:
            call = self._claimed.stored.identity.tool_call_id
            _log.info("output of call %s is left out of the log: session %s is over its rate", call, session)
        self._is_left_out = True
        return False

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
