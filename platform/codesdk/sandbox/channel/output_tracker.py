"""The output of one exec as it comes: every byte accounted for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from codesdk.sandbox.port import ExecResult
from codesdk.sandbox.port.faults import RunnerRefused


@contextlib.contextmanager
def reject_malformed(what: str) -> Iterator[None]:
    """For what is read from a runner's words: in a tenant's image they are hostile input, and may be anything.

    Raises:
        RunnerRefused: they make no sense.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunnerRefused(f"The runner's {what} makes no sense: {error!r}"[:_MAX_MESSAGE]) from error


_MAX_MESSAGE = 2000


class OutputTracker:
    """How much of each stream has come.

    A gap or a repeat would forge the output, and in a tenant's image the runner's frames are hostile input: only one
    gap is taken, the one that the end accounts for.
    """

    def __init__(self, keep: int) -> None:
        """Keep: bytes of each stream that may come at most."""
        self.next = [0, 0]
        self._left = [keep, keep]
        self._gaps: list[tuple[int, int] | None] = [None, None]

    def take(self, header: dict[str, Any], size: int) -> tuple[int, int]:
        """A chunk has come: its stream and offset.

        Raises:
            RunnerRefused: it does not follow what came before, or there is more than was asked to be kept.
        """
        with reject_malformed("output"):
            stream, offset = int(header["stream"]), int(header["offset"])
            if stream not in (0, 1):
                raise LookupError(f"there is no stream {stream}")
        self._left[stream] -= size
        if self._left[stream] < 0:
            raise RunnerRefused("The runner sent more output than it was asked to keep")
        if offset != self.next[stream]:
            if offset < self.next[stream] or self._gaps[stream] is not None:
                raise RunnerRefused(f"The runner sent output at offset {offset} where {self.next[stream]} was expected")
            self._gaps[stream] = (self.next[stream], offset - self.next[stream])
        self.next[stream] = offset + size
        return stream, offset

    def check(self, result: ExecResult) -> None:
        """Compare with what the runner says in the end.

        Raises:
            RunnerRefused: it counts other bytes than it sent.
        """
        for index, count in enumerate((result.stdout, result.stderr)):
            end, gap = self.next[index], self._gaps[index]
            if gap is None and count.dropped:  # nothing was kept after what was dropped
                gap, end = (end, count.bytes - end), count.bytes
            if end != count.bytes or gap != ((count.gap, count.dropped) if count.dropped else None):
                raise RunnerRefused(f"The runner says that it kept {count!r}, and sent up to {end} with the gap {gap}")
