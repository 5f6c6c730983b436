"""Classifies database errors by their codes. Messages never contain values or statements."""

from __future__ import annotations

import re
import sqlite3
from typing import ClassVar, NamedTuple, TypeGuard

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from codesdk.errors import ExitCode, Fault, Unavailable

_NOTHING_LOST = "Nothing that was acknowledged is lost."


class StorageUnavailable(Unavailable):
    """The database can't be opened, or is full, locked, damaged or gone."""

    code = "STORAGE_UNAVAILABLE"
    retry_after_s: ClassVar[float | None] = 1.0


class DatabaseGone(StorageUnavailable):
    """The database doesn't answer, or the connection broke."""

    code = "DATABASE_GONE"


class CommitIndeterminate(DatabaseGone):
    """The connection broke during a commit, so the transaction may have taken effect or not."""

    code = "COMMIT_UNHEARD"


class DatabaseLoginRefused(StorageUnavailable):
    """The database rejects the login, or has no database of that name."""

    code = "DATABASE_LOGIN_REFUSED"
    retryable = False
    retry_after_s = None


class ConnectionsExhausted(StorageUnavailable):
    """All connections are in use, the server's or this process's."""

    code = "DATABASE_CROWDED"


class DatabaseReadOnly(StorageUnavailable):
    """The database is read-only: a standby, a read-only file or a setting."""

    code = "DATABASE_READ_ONLY"
    retryable = False
    retry_after_s = None


class DatabaseLocked(StorageUnavailable):
    """Another transaction held a needed lock for longer than the lock timeout."""

    code = "DATABASE_LOCKED"


class StatementTimeout(StorageUnavailable):
    """A statement exceeded its timeout, or was cancelled."""

    code = "DATABASE_SLOW"


class DatabaseFull(StorageUnavailable):
    """The database's disk is full."""

    code = "DATABASE_FULL"


class ValueRefused(StorageUnavailable):
    """A value can't be stored: text with a NUL, or too long for its column. The caller's error, not the database's."""

    code = "VALUE_REFUSED"
    retryable = False
    retry_after_s = None
    status = 422
    exit_code = ExitCode.USAGE


class WriteConflict(Fault):
    """Data that a unit of work had read changed before its end. The writer retries it, so callers rarely see this."""

    code = "OVERTAKEN"
    retryable = True
    status = 503


class _FaultKind(NamedTuple):
    fault: type[StorageUnavailable]
    advice: str


_GONE = _FaultKind(DatabaseGone, "Check that it runs and that its address is right; it reconnects by itself.")
_LOGIN = _FaultKind(DatabaseLoginRefused, "Correct the user, password or database name in CODESDK_DATABASE_URL.")
_EXHAUSTED = _FaultKind(ConnectionsExhausted, "Raise the server's max_connections, or run fewer processes.")
_READ_ONLY = _FaultKind(DatabaseReadOnly, "Point CODESDK_DATABASE_URL at the primary, or make it writable.")
_LOCKED = _FaultKind(DatabaseLocked, "Try again; find the holder of the lock (PostgreSQL: pg_stat_activity).")
_TIMEOUT = _FaultKind(StatementTimeout, "Try again; find what keeps it busy (PostgreSQL: pg_stat_activity).")
_FULL = _FaultKind(DatabaseFull, "Free up space on the database's disk.")
_VALUE = _FaultKind(ValueRefused, "Send shorter text without NUL characters.")
_OTHER = _FaultKind(StorageUnavailable, "Check that the database runs, is reachable and has free space.")

NO_ANSWER = "HYT00"
"""Our own SQLSTATE, named like ODBC's timeout: the server didn't answer in time (`ServerTimeouts`)."""
_SQLSTATES = {
    NO_ANSWER: _GONE,
    "22": _VALUE,
    "25006": _READ_ONLY,
    "28": _LOGIN,
    "3D": _LOGIN,
    "53100": _FULL,
    "53200": _EXHAUSTED,
    "53300": _EXHAUSTED,
    "55P03": _LOCKED,
    "40": _LOCKED,
    "08": _GONE,
    "57P": _GONE,
    "57014": _TIMEOUT,
}
"""Fault by SQLSTATE; the longest prefix wins (PostgreSQL's manual, appendix A)."""
_MESSAGE_PATTERNS = (
    (_VALUE, r"cannot contain NUL"),
    (_LOGIN, r"password authentication failed|no password supplied|role \".*\" does not exist|no pg_hba\.conf entry"),
    (_LOGIN, r"database \".*\" does not exist|authentication failed|permission denied for database"),
    (_EXHAUSTED, r"too many clients|connection slots are reserved|too many connections"),
    (
        _GONE,
        r"refused|No such file|could not translate|failed to resolve|starting up|shutting down|accepting connections|terminat|closed|timeout|timed out",
    ),
    (
        _GONE,
        r"connection (is )?(lost|bad)|in recovery mode|No route|unreachable|SSL SYSCALL|EOF detected|reset by peer",
    ),
)
"""Fault by message: libpq gives no SQLSTATE for a connection that was never established."""
_SQLITE_ERRORS = {
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_CANTOPEN": _GONE,
}
_ROLLED_BACK = ("40001", "40P01")
"""Serialization failure and deadlock: the server has rolled the transaction back."""
_UNIQUE_VIOLATION = "23505"
"""Unique violation: another transaction inserted the same row after this unit looked for it."""


def to_fault(error: DBAPIError | PoolTimeout) -> StorageUnavailable:
    """Translate the driver's error. Keeps only its first line, because the following ones may contain values."""
    if isinstance(error, PoolTimeout):
        return ConnectionsExhausted(
            f"Every database connection of this process is in use. {_NOTHING_LOST}",
            advice="Try again with fewer requests at once.",
        )
    words = _message_of(error)
    kind = _classify(error, words)
    verb = "does not answer" if is_unresponsive(error) else "refused"
    return kind.fault(f"The database {verb}: {words}. {_NOTHING_LOST}", advice=kind.advice)


def connections_dropped() -> DatabaseGone:
    """Build the fault for a server that closes connections at once, as one that is stopping or crashing does."""
    return DatabaseGone(f"The database closed each connection at once. {_NOTHING_LOST}", advice=_GONE.advice)


def commit_indeterminate(error: DBAPIError) -> CommitIndeterminate:
    """Translate the error that broke a connection after its commit had been sent."""
    return CommitIndeterminate(
        f"The connection broke during a commit: {_message_of(error)}. {_NOTHING_LOST}", advice=_GONE.advice
    )


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the server has rolled the transaction back and expects a retry."""
    return _sqlstate(error) in _ROLLED_BACK


def is_conflict(error: BaseException) -> bool:
    """Return whether an immediate retry may succeed, because a concurrent transaction caused the error."""
    return isinstance(error, WriteConflict) or is_rolled_back(error) or _sqlstate(error) == _UNIQUE_VIOLATION


def is_lock_timeout(error: BaseException) -> TypeGuard[DBAPIError]:
    """Return whether a statement hit the lock timeout."""
    return isinstance(error, DBAPIError) and _classify(error, "") is _LOCKED and not is_rolled_back(error)


def is_unresponsive(error: BaseException) -> bool:
    """Return whether the server failed to answer in time. An immediate retry would wait as long again."""
    return _sqlstate(error) == NO_ANSWER


def is_disconnected(error: BaseException) -> bool:
    """Return whether the connection broke. If the commit had not been sent, nothing of the transaction was stored."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _classify(error: DBAPIError, words: str) -> _FaultKind:
    if isinstance(error.orig, sqlite3.Error):
        name = getattr(error.orig, "sqlite_errorname", None) or ""  # SQLITE_READONLY_DBMOVED is a SQLITE_READONLY
        return next((kind for prefix, kind in _SQLITE_ERRORS.items() if name.startswith(prefix)), _OTHER)
    state = _sqlstate(error)
    for length in (5, 3, 2):
        if (kind := _SQLSTATES.get(state[:length])) is not None:
            return kind
    if state and not error.connection_invalidated:
        return _OTHER
    found = next((kind for kind, pattern in _MESSAGE_PATTERNS if re.search(pattern, words)), None)
    return found or (_GONE if error.connection_invalidated else _OTHER)


def _message_of(error: DBAPIError) -> str:
    # Servers quote values in the lines after the first (DETAIL, LINE), and in any line of data errors (class 22).
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines and not _sqlstate(error).startswith("22") else type(error.orig).__name__


def _sqlstate(error: BaseException) -> str:
    """Return PostgreSQL's SQLSTATE; empty for SQLite, and if there is none."""
    return (getattr(error.orig, "sqlstate", None) or "") if isinstance(error, DBAPIError) else ""
