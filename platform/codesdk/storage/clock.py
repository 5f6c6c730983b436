"""The database's own clock inside statements: expiry is judged by one clock, not by each process's."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class database_now(FunctionElement[float]):  # noqa: N801 (reads as the SQL function that it is)
    """Seconds since the epoch, at the moment of the statement."""

    type = Float()
    inherit_cache = True
    name = "database_now"


@compiles(database_now, "sqlite")
def _sqlite_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_now, "postgresql")
def _postgresql_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    # clock_timestamp, not now(): the latter stands still in a transaction. extract gives numeric; columns are double.
    return "CAST(extract(epoch from clock_timestamp()) AS double precision)"
