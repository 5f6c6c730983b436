"""How many calls ended how, how long they were queued and ran, and how long people took to answer: histograms in rows.

Counted in the transaction that writes the end, so that no end is counted twice or not at all, whatever dies. The rows are
a host's, and its worker alone ends calls there, nearly always: no two processes wait for the same one. All ends of a group
of units are one statement, after the log's; a host's rows are held for the length of the commit.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from typing import Literal, NamedTuple

from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import DenialCode
from codesdk.domain.ids import HostId, TenantId
from codesdk.domain.tool_results import ToolResult
from codesdk.storage.schema import call_tallies, refused_calls
from codesdk.storage.writer import Unit
from codesdk.toolcalls.records.call_record import CallDurations

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

UNBOUNDED = 0
"""In place of an upper bound: above the highest."""
LABEL_CHARACTERS = 48
"""Characters of a label, as the column has them."""
_COLUMNS = "host_id, series, label, upto_ms, calls, seconds"
_ON_CONFLICT = (
    " ON CONFLICT (host_id, series, label, upto_ms) DO UPDATE SET"
    " calls = call_tallies.calls + excluded.calls, seconds = call_tallies.seconds + excluded.seconds"
)
# Text for the driver, as the log's inserts are: every call comes by here.
_SQLITE = f"INSERT INTO call_tallies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?){_ON_CONFLICT}"  # noqa: S608 (constants)
_POSTGRESQL = (
    f"INSERT INTO call_tallies ({_COLUMNS}) SELECT * FROM unnest("  # noqa: S608 (constants)
    f"%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[]){_ON_CONFLICT}"
)
_ALL = select(call_tallies)


class Sample(NamedTuple):
    """One call, or question, in its bucket."""

    host: str
    series: str
    label: str
    upto_ms: int
    seconds: float


class HistogramBucket(NamedTuple):
    """A row: those of a bucket, and the seconds of all of them together."""

    host: str
    series: str
    label: str
    upto_ms: int
    calls: int
    seconds: float


_INCREMENT_DENIALS = (
    update(refused_calls)
    .where(refused_calls.c.tenant_id == bindparam("tenant"), refused_calls.c.code == bindparam("why"))
    .values(calls=refused_calls.c.calls + 1)
)
_INSERT_DENIALS = insert_into(refused_calls).values(tenant_id=bindparam("tenant"), code=bindparam("why"), calls=1)
_DENIALS = select(refused_calls.c.code, func.sum(refused_calls.c.calls)).group_by(refused_calls.c.code)


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
    upto = bounds[place] if place < len(bounds) else UNBOUNDED
    one = Sample(host, series.value, label[:LABEL_CHARACTERS], upto, seconds)
    unit.batch(_add_samples, host).append(one)


def count_denial(unit: Unit, tenant: TenantId, code: DenialCode) -> None:
    """A call was denied. Its row is locked only while the transaction that denies it commits."""
    unit.at_end(f"refused:{tenant}:{code}", lambda connection: _add_denial(connection, tenant, code))


def _add_samples(connection: Connection, gathered: dict[str, list[Sample]]) -> None:
    """Count them. Rows are taken in the order of their keys, as every process takes them."""
    sums: dict[tuple[str, str, str, int], tuple[int, float]] = {}
    for samples in gathered.values():
        for sample in samples:
            calls, seconds = sums.get(sample[:4], (0, 0.0))
            sums[sample[:4]] = (calls + 1, seconds + sample.seconds)
    rows = [(*key, *sum_) for key, sum_ in sorted(sums.items())]
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_SQLITE, rows)
    else:
        connection.exec_driver_sql(_POSTGRESQL, tuple(list(column) for column in zip(*rows, strict=True)))


def all_buckets(connection: Connection) -> list[HistogramBucket]:
    """All of them: some dozens for each host."""
    return [HistogramBucket(*row) for row in connection.execute(_ALL)]


def _add_denial(connection: Connection, tenant: TenantId, code: DenialCode) -> None:
    """One more. Where another process makes the row first, the insert fails, and the writer runs the unit again."""
    key = {"tenant": tenant, "why": code.value}
    if not connection.execute(_INCREMENT_DENIALS, key).rowcount:
        connection.execute(_INSERT_DENIALS, key)


def denial_totals(connection: Connection) -> dict[str, int]:
    """Of all tenants, by code."""
    return {code: int(calls) for code, calls in connection.execute(_DENIALS)}
