"""Output that policy redacts: held until the command has ended, then cleaned as a whole and handed on.

Cleaned piece by piece, a secret that two pieces share would pass; and what is kept of a stream is bounded anyway.
"""

from __future__ import annotations

from codesdk.domain.redaction import CUT_MARGIN_BYTES, Redactor
from codesdk.sandbox.port import Chunk, ExecResult, OnOutput, OutputCount, Process, Processes, Stream

CHUNK_BYTES = 64 * 1024
"""Bytes of a chunk that is handed on."""
READ_BYTES = 1024 * 1024
"""Bytes of one answer about an ended process: what a runner gives at once."""
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class RedactingBuffer:
    """The beginning of both streams, up to where bytes were dropped: what follows a gap may begin inside a secret."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[bytes]] = {name: [] for name in STREAMS}
        self._ends = dict.fromkeys(STREAMS, 0)

    def add(self, chunk: Chunk) -> None:
        """The next piece, as it comes."""
        if chunk.offset == self._ends[chunk.stream]:
            self._pieces[chunk.stream].append(chunk.data)
            self._ends[chunk.stream] += len(chunk.data)

    def release(self, result: ExecResult, redactor: Redactor, on_output: OnOutput) -> ExecResult:
        """Hand on what is clean, and give the result with the counts of that."""
        counts: dict[str, OutputCount] = {}
        for name, written in zip(STREAMS, (result.stdout, result.stderr), strict=True):
            data = b"".join(self._pieces[name])
            is_cut = written.bytes > len(data)
            clean = redactor.clean(data, is_cut=is_cut)
            for start in range(0, len(clean), CHUNK_BYTES):
                on_output(Chunk(stream=name, offset=start, data=clean[start : start + CHUNK_BYTES]))
            lost = written.bytes - max(0, len(data) - CUT_MARGIN_BYTES) if is_cut else 0
            counts[name] = OutputCount(bytes=len(clean) + lost, dropped=lost, gap=len(clean) if lost else 0)
        return result.model_copy(update=counts)


def read_retained_output(processes: Processes, process: Process, stream: Stream) -> tuple[bytes, bool]:
    """The beginning of a stream of an ended process, up to where bytes were dropped; and whether it is cut there."""
    pieces: list[bytes] = []
    end = 0
    while (found := processes.output(process.call, process.attempt, stream, end, length=READ_BYTES)) is not None:
        if not found.data or found.offset != end:
            return b"".join(pieces), end < found.seen
        pieces.append(found.data)
        end += len(found.data)
    return b"".join(pieces), True
