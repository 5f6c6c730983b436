"""The statements of the tallies: one upsert for all that a group of units has gathered."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from codesdk.storage.schema import call_tallies

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


def add(connection: Connection, gathered: dict[str, list[Sample]]) -> None:
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
