"""The statements of the tallies: one upsert for all that a group of units has gathered."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from codesdk.storage.schema import call_tallies

ABOVE = 0
"""In place of an upper bound: above the highest."""
LABEL = 48
"""Characters of a label, as the column has them."""
_COLUMNS = "host_id, series, label, upto_ms, calls, seconds"
_MORE = (
    " ON CONFLICT (host_id, series, label, upto_ms) DO UPDATE SET"
    " calls = call_tallies.calls + excluded.calls, seconds = call_tallies.seconds + excluded.seconds"
)
# Text for the driver, as the log's inserts are: every call comes by here.
_SQLITE = f"INSERT INTO call_tallies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?){_MORE}"  # noqa: S608 (constants)
_POSTGRESQL = (
    f"INSERT INTO call_tallies ({_COLUMNS}) SELECT * FROM unnest("  # noqa: S608 (constants)
    f"%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[]){_MORE}"
)
_ALL = select(call_tallies)


class One(NamedTuple):
    """One call, or question, in its bucket."""

    host: str
    series: str
    label: str
    upto_ms: int
    seconds: float


class Tally(NamedTuple):
    """A row: those of a bucket, and the seconds of all of them together."""

    host: str
    series: str
    label: str
    upto_ms: int
    calls: int
    seconds: float


def add(connection: Connection, gathered: dict[str, list[One]]) -> None:
    """Count them. Rows are taken in the order of their keys, as every process takes them."""
    sums: dict[tuple[str, str, str, int], tuple[int, float]] = {}
    for ones in gathered.values():
        for one in ones:
            calls, seconds = sums.get(one[:4], (0, 0.0))
            sums[one[:4]] = (calls + 1, seconds + one.seconds)
    rows = [(*key, *sum_) for key, sum_ in sorted(sums.items())]
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_SQLITE, rows)
    else:
        connection.exec_driver_sql(_POSTGRESQL, tuple(list(column) for column in zip(*rows, strict=True)))


def everything(connection: Connection) -> list[Tally]:
    """All of them: some dozens for each host."""
    return [Tally(*row) for row in connection.execute(_ALL)]
