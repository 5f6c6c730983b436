"""How many calls ended how, how long they were queued and ran, and how long people took to answer: histograms in rows.

Counted in the transaction that writes the end, so that no end is counted twice or not at all, whatever dies. The rows are
a host's, and its worker alone ends calls there, nearly always: no two processes wait for the same one. All ends of a group
of units are one statement, after the log's; a host's rows are held for the length of the commit.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import Literal

from codesdk.domain.ids import HostId
from codesdk.domain.tool_results import ToolResult
from codesdk.storage.writer import Unit
from codesdk.toolcalls.records.call_record import CallDurations
from codesdk.toolcalls.statistics import call_statistics_store

OK = "OK"
FAILED = "FAILED"
"""The label of an error that has no code: the tool said so, as a command does with its exit code."""
CALL_BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
"""Milliseconds. A governed call takes some 10 ms (docs/explanation/exec-cost.md), and a tool may take hours."""
ANSWER_BOUNDS_MS = (
    5000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    14_400_000,
    86_400_000,
)
"""Milliseconds; people take seconds to days."""


class Series(StrEnum):
    """What was measured."""

    QUEUE = "queue"
    """From the queue to the start, of calls that ran; no label."""
    RUN = "run"
    """From the start until the end was recorded, by the result's code."""
    ANSWER = "answer"
    """From a question until it was answered, or expired."""


BOUNDS_MS = {Series.QUEUE: CALL_BOUNDS_MS, Series.RUN: CALL_BOUNDS_MS, Series.ANSWER: ANSWER_BOUNDS_MS}


def record_end(unit: Unit, host: HostId, result: ToolResult, lasted: CallDurations) -> None:
    """An attempt that had started has ended; the unit has appended its end to the log."""
    code = result.code or (FAILED if result.is_error else OK)
    _record(unit, host, Series.QUEUE, "", lasted.queued_s)
    _record(unit, host, Series.RUN, code, lasted.ran_s)


def record_answer(unit: Unit, host: HostId, how: Literal["approved", "rejected", "expired"], seconds: float) -> None:
    """A question about a call of that host is settled; the unit has appended that to the log."""
    _record(unit, host, Series.ANSWER, how, seconds)


def _record(unit: Unit, host: HostId, series: Series, label: str, seconds: float) -> None:
    bounds = BOUNDS_MS[series]
    place = bisect_left(bounds, seconds * 1000)
    upto = bounds[place] if place < len(bounds) else call_statistics_store.UNBOUNDED
    one = call_statistics_store.Sample(
        host, series.value, label[: call_statistics_store.LABEL_CHARACTERS], upto, seconds
    )
    unit.batch(call_statistics_store.add, host).append(one)
