"""The output of one exec as it comes: every byte accounted for."""

from __future__ import annotations

from codesdk.sandbox.faults import RunnerRefused
from codesdk.sandbox.port import ExecResult


class Received:
    """How much of each stream has come.

    A gap or a repeat would forge the output, and in a tenant's image the runner's frames are hostile input: only one
    gap is taken, the one that the end accounts for.
    """

    def __init__(self) -> None:
        self.next = [0, 0]
        self._gaps: list[tuple[int, int] | None] = [None, None]

    def take(self, stream: int, offset: int, size: int) -> None:
        """A chunk has come.

        Raises:
            RunnerRefused: it does not follow what came before.
        """
        if offset != self.next[stream]:
            if offset < self.next[stream] or self._gaps[stream] is not None:
                raise RunnerRefused(f"The runner sent output at offset {offset} where {self.next[stream]} was expected")
            self._gaps[stream] = (self.next[stream], offset - self.next[stream])
        self.next[stream] = offset + size

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
