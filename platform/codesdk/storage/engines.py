"""Creates engines and configures connections, so that SQLite and PostgreSQL give the log the same guarantees."""

from __future__ import annotations

import os
import select
import sqlite3
from contextlib import closing, suppress
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError, InvalidRequestError
from sqlalchemy.pool import PoolProxiedConnection

from codesdk.storage.faults import connections_dropped
from codesdk.storage.timeouts import ServerTimeouts, milliseconds

SQLITE_BUSY_TIMEOUT_S = 30.0
"""Seconds that an SQLite statement waits for a lock. For PostgreSQL, see `ServerTimeouts`."""
READER_POOL_SIZE = 5
READER_POOL_OVERFLOW = 15
"""Connections that a process keeps for reading, and how many more it opens under load."""


def postgresql(url: URL, *, writes: bool, timeouts: ServerTimeouts) -> Engine:
    """Create an engine for PostgreSQL. Reads autocommit, each with its own snapshot; the writer uses transactions."""
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED" if writes else "AUTOCOMMIT",
        pool_size=1 if writes else READER_POOL_SIZE,
        max_overflow=READER_POOL_OVERFLOW,
        pool_timeout=timeouts.lock_s,
        connect_args={
            "connect_timeout": timeouts.connect_s,
            "client_encoding": "utf8",
            "application_name": f"codesdk {'writer' if writes else 'reader'} {os.getpid()}",
            # Detects a broken network well before `answer_s`; otherwise heartbeats would wait that long, too.
            "tcp_user_timeout": milliseconds(timeouts.connect_s),
            # Detects a vanished host within a minute; TCP's default is two hours.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
        },
    )

    def prepare(connection: Any, _record: object) -> None:
        _run_setup(connection, _writer_settings(timeouts) if writes else _reader_settings(timeouts))

    def look(connection: Any, _record: object, _proxy: PoolProxiedConnection) -> None:
        timeouts.check(engine.dialect)
        _refuse_closed(connection)

    event.listen(engine, "do_connect", timeouts.connect)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "checkout", look)
    return engine


def sqlite(url: URL, *, writes: bool) -> Engine:
    """Create an engine for SQLite. Reads autocommit, because each is a single statement."""
    isolation: dict[str, Any] = {} if writes else {"isolation_level": "AUTOCOMMIT"}
    # Pooled connections move between threads, one user at a time. SQLite itself is built thread-safe.
    engine = create_engine(
        url,
        connect_args={"check_same_thread": False, "timeout": SQLITE_BUSY_TIMEOUT_S},
        pool_reset_on_return=None,
        **isolation,
    )
    _create_private_file(engine.url.database)
    event.listen(engine, "connect", _set_pragmas)
    if writes:
        # No "begin" listener: an engine with one looks for listeners at every statement, too.
        engine.dialect.do_begin = _begin_immediate  # type: ignore[method-assign]
    return engine


def connect(engine: Engine) -> Connection:
    """Check out a connection from the engine's pool.

    Raises:
        DatabaseGone: the server closed every connection that was pooled or created.
        DBAPIError, PoolTimeout: no connection is available.
    """
    try:
        return engine.connect()
    except InvalidRequestError as error:  # what the pool raises after `_refuse_closed` rejected each one
        raise connections_dropped() from error


def close(engine: Engine) -> None:
    """Close the engine's connections: the pooled ones now, one that is in use when it is returned."""
    # Otherwise the pool would keep what returns after `dispose`, until it is garbage.
    event.listen(engine, "checkin", lambda _connection, record: record.close())
    engine.dispose()


def _refuse_closed(connection: Any) -> None:
    # A closed connection's socket is readable, an idle one's is not: polling it finds what a ping would, without the
    # round trip. The pool then creates a new connection.
    with suppress(Exception):
        looked = select.poll()  # select() can't take descriptors above 1023
        looked.register(connection.fileno(), select.POLLIN)
        if not looked.poll(0):
            return
    raise DisconnectionError("the server has closed this connection")


def _reader_settings(timeouts: ServerTimeouts) -> str:
    return _set_config(lock_timeout=timeouts.lock_s, statement_timeout=timeouts.statement_s)


def _writer_settings(timeouts: ServerTimeouts) -> str:
    # No statement_timeout: it would end a COMMIT's wait for a synchronous standby and report success.
    limits = _set_config(lock_timeout=timeouts.lock_s, idle_in_transaction_session_timeout=timeouts.stalled_s)
    # An acknowledged event must survive power loss, whatever the server's default (docs/adr/0003).
    durable = (
        "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END"
    )
    return f"{limits}, set_config('synchronous_commit', {durable}, false)"


def _set_config(**seconds: float) -> str:
    # Not as startup options: PgBouncer refuses those.
    return "SELECT " + ", ".join(f"set_config('{name}', '{milliseconds(s)}', false)" for name, s in seconds.items())


def _run_setup(connection: Any, statement: str) -> None:
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)
        connection.commit()
    except BaseException:  # a server that goes away meanwhile: the pool does not close what it never took
        connection.close()
        raise


def _create_private_file(path: str | None) -> None:
    # SQLite would create it world-readable, and an existing data directory may be open to others.
    if path and not path.startswith((":", "file:")):
        with suppress(OSError):  # SQLite reports the error better
            # Only if new: closing any descriptor of a file drops this process's POSIX locks on it, which SQLite relies
            # on.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the dialect opens transactions, not the driver
    with closing(connection.cursor()) as cursor:
        cursor.execute("PRAGMA journal_mode=WAL")
        # FULL: an acknowledged event must survive power loss. With NORMAL its seq could be assigned again
        # (docs/adr/0003).
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA busy_timeout={int(SQLITE_BUSY_TIMEOUT_S * 1000)}")


def _begin_immediate(dbapi_connection: PoolProxiedConnection) -> None:
    # Takes the write lock at once: a deferred transaction that upgrades can fail with SQLITE_BUSY.
    with closing(dbapi_connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
