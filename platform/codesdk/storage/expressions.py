"""SQL expressions that the stores share: the database's clock, and `IN` lists that need no expansion per run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Float, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class database_now(FunctionElement[float]):  # noqa: N801 (reads as the SQL function that it is)
    """Seconds since the epoch when the statement runs. Expiry uses this one clock instead of each process's own."""

    type = Float()
    inherit_cache = True
    name = "database_now"


@compiles(database_now, "sqlite")
def _sqlite_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_now, "postgresql")
def _postgresql_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    # Not now(), which is fixed for the transaction. The cast is needed because extract() returns numeric.
    return "CAST(extract(epoch from clock_timestamp()) AS double precision)"


def in_list(column: ColumnElement[str], values: Iterable[str]) -> ColumnElement[bool]:
    """Build `column IN (…)` with one literal per value.

    For a list of plain values, SQLAlchemy expands and recompiles part of the statement at every run.
    """
    return column.in_([literal(str(value)) for value in values])
