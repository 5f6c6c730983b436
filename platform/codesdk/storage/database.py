"""Engines: one for reading, one for the writer; SQLite and PostgreSQL on one code path."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Connection, Engine, Float, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from codesdk.errors import ExitCode, Fault


class StorageUnavailable(Fault):
    """The database cannot be opened, is full, locked, damaged or gone."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class DatabaseUrlWrong(Fault):
    """The database's URL names none that this installation can use."""

    code = "DATABASE_URL_WRONG"
    exit_code = ExitCode.USAGE


class database_now(FunctionElement[float]):  # noqa: N801 (reads as the SQL function that it is)
    """Seconds since the epoch on the database's own clock: expiry is judged by one clock, not by each process's."""

    type = Float()
    inherit_cache = True
    name = "database_now"


@compiles(database_now, "sqlite")
def _sqlite_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_now, "postgresql")
def _postgresql_now(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "extract(epoch from clock_timestamp())"


class Database:
    """Two engines on one URL. Reads are short and see committed rows only."""

    def __init__(self, url: str) -> None:
        """Nothing is connected yet.

        Raises:
            DatabaseUrlWrong: the URL cannot be read, or its driver is not installed.
        """
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self.reader: Engine = self._engine(writes=False)
        self.writer: Engine = self._engine(writes=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for a short read.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        try:
            with self.reader.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise unavailable(error) from error

    def close(self) -> None:
        """Close every pooled connection."""
        self.reader.dispose()
        self.writer.dispose()

    def _engine(self, *, writes: bool) -> Engine:
        isolation: dict[str, Any]
        if not self.is_sqlite:
            isolation = {"isolation_level": "READ COMMITTED" if writes else "AUTOCOMMIT"}
            return self._made(isolation)
        # Connections move between threads of the pool, one user at a time; SQLite itself is built thread-safe. A read
        # is one statement, so it needs no transaction around it.
        isolation = {} if writes else {"isolation_level": "AUTOCOMMIT"}
        engine = self._made({"connect_args": {"check_same_thread": False, "timeout": 30.0}, **isolation})
        _make_private(engine.url.database)
        event.listen(engine, "connect", _set_pragmas)
        # BEGIN IMMEDIATE takes the write lock at once: a deferred transaction that upgrades can only fail as busy.
        if writes:
            event.listen(engine, "begin", _begin_immediate)
        return engine

    def _made(self, options: dict[str, Any]) -> Engine:
        try:
            return create_engine(self.url, **options)
        except (ArgumentError, ImportError) as error:
            raise DatabaseUrlWrong(
                f"The database's URL cannot be used: {error}.",
                advice="Mend CODESDK_DATABASE_URL, or unset it for SQLite in the data directory.",
            ) from error


def _make_private(path: str | None) -> None:
    # SQLite would make it readable to all, and a data directory that was there before may let them in.
    if path and not path.startswith((":", "file:")):
        with suppress(OSError):  # SQLite says better what is wrong
            # Only where it is new: closing a file drops this process's locks on it, which SQLite counts on.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def unavailable(error: DBAPIError) -> StorageUnavailable:
    """Translate the driver's error, keeping its words."""
    words = str(error.orig).splitlines()[0] if error.orig else str(error)
    advice = "Check that the database runs, is reachable and has room; nothing that was acknowledged is lost."
    return StorageUnavailable(f"The database refused: {words}.", advice=advice)


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy's begin event below opens transactions, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # FULL: an acknowledged event survives power loss; with NORMAL its seq could be given again (docs/adr/0003).
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
