"""Classifies database errors by their codes. Messages never contain values or statements."""

from __future__ import annotations

import re
import sqlite3
from typing import ClassVar, NamedTuple, TypeGuard

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from codesdk.errors import ExitCode, Fault

_NOTHING_LOST = "Nothing that was acknowledged is lost."


class StorageUnavailable(Fault):
    """The database cannot be opened, is full, locked, damaged or gone."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE
    retry_after_s: ClassVar[float | None] = 1.0


class DatabaseGone(StorageUnavailable):
    """Nobody answers at the database's place, or the connection broke."""

    code = "DATABASE_GONE"


class CommitIndeterminate(DatabaseGone):
    """The connection broke with a commit on its way: what was to be kept may be there, or not."""

    code = "COMMIT_UNHEARD"


class DatabaseLoginRefused(StorageUnavailable):
    """The database answers and does not let this user in, or has no database of that name."""

    code = "DATABASE_LOGIN_REFUSED"
    retryable = False
    retry_after_s = None


class ConnectionsExhausted(StorageUnavailable):
    """Every connection is taken, the server's or this process's."""

    code = "DATABASE_CROWDED"


class DatabaseReadOnly(StorageUnavailable):
    """The database takes no writes: a standby, a read-only file or a setting."""

    code = "DATABASE_READ_ONLY"
    retryable = False
    retry_after_s = None


class DatabaseLocked(StorageUnavailable):
    """Another transaction holds what this one needs, for longer than one waits."""

    code = "DATABASE_LOCKED"


class StatementTimeout(StorageUnavailable):
    """A statement took longer than one waits, or somebody ended it."""

    code = "DATABASE_SLOW"


class DatabaseFull(StorageUnavailable):
    """The database's disk has no room."""

    code = "DATABASE_FULL"


class ValueRefused(StorageUnavailable):
    """A value that the database cannot hold: text with a NUL, or longer than its place. The caller's, not the database's."""

    code = "VALUE_REFUSED"
    retryable = False
    retry_after_s = None
    status = 422
    exit_code = ExitCode.USAGE


class WriteConflict(Fault):
    """What a unit of work had read is no longer true at its end. The writer runs it again; callers see it rarely."""

    code = "OVERTAKEN"
    retryable = True
    status = 503


class _FaultKind(NamedTuple):
    fault: type[StorageUnavailable]
    advice: str


_GONE = _FaultKind(
    DatabaseGone, "Check that it runs and that its address is right; the connection is made anew by itself."
)
_LOGIN = _FaultKind(DatabaseLoginRefused, "Mend user, password or database name in CODESDK_DATABASE_URL.")
_EXHAUSTED = _FaultKind(ConnectionsExhausted, "Raise the server's max_connections, or run fewer processes.")
_READ_ONLY = _FaultKind(DatabaseReadOnly, "Point CODESDK_DATABASE_URL at the primary, or make it writable.")
_LOCKED = _FaultKind(DatabaseLocked, "Try again; see who holds it (PostgreSQL: pg_stat_activity).")
_TIMEOUT = _FaultKind(StatementTimeout, "Try again; see what it is busy with (PostgreSQL: pg_stat_activity).")
_FULL = _FaultKind(DatabaseFull, "Make room on the database's disk.")
_VALUE = _FaultKind(ValueRefused, "Send text without NUL characters, and shorter.")
_OTHER = _FaultKind(StorageUnavailable, "Check that the database runs, is reachable and has room.")

NO_ANSWER = "HYT00"
"""A state of our own, named as ODBC does: the server was waited for in vain (`patience`). It sends none then."""
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
"""By the longest prefix of SQLSTATE (PostgreSQL's manual, appendix A)."""
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
"""libpq gives no SQLSTATE for a connection that was never made; its words are all that there is."""
_SQLITE_ERRORS = {
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_CANTOPEN": _GONE,
}
_ROLLED_BACK = ("40001", "40P01")
"""Serialization failure and deadlock: the server has undone the transaction, whatever of it had been done."""
_UNIQUE_VIOLATION = "23505"
"""A unique constraint: in a unit that looked before, another transaction made the same in between."""


def to_fault(error: DBAPIError | PoolTimeout) -> StorageUnavailable:
    """Translate the driver's error. Its first line is kept: the further ones may hold values."""
    if isinstance(error, PoolTimeout):
        return ConnectionsExhausted(
            f"Every database connection of this process is in use. {_NOTHING_LOST}",
            advice="Try again; fewer requests at once.",
        )
    words = _message_of(error)
    kind = _classify(error, words)
    verb = "does not answer" if is_unresponsive(error) else "refused"
    return kind.fault(f"The database {verb}: {words}. {_NOTHING_LOST}", advice=kind.advice)


def connections_dropped() -> DatabaseGone:
    """Of a server that ends connections as soon as they are made, as one does that stops or crashes."""
    return DatabaseGone(
        f"The database ended each connection as soon as it was made. {_NOTHING_LOST}", advice=_GONE.advice
    )


def commit_indeterminate(error: DBAPIError) -> CommitIndeterminate:
    """Translate what broke a connection whose commit had been sent."""
    return CommitIndeterminate(
        f"The database broke off in a commit: {_message_of(error)}. {_NOTHING_LOST}", advice=_GONE.advice
    )


def is_rolled_back(error: BaseException) -> bool:
    """Whether the server itself has taken the transaction back and asks for it again."""
    return _sqlstate(error) in _ROLLED_BACK


def is_conflict(error: BaseException) -> bool:
    """Whether the work may succeed when it is run again at once, because others were faster."""
    return isinstance(error, WriteConflict) or is_rolled_back(error) or _sqlstate(error) == _UNIQUE_VIOLATION


def is_lock_timeout(error: BaseException) -> TypeGuard[DBAPIError]:
    """Whether a statement waited for another transaction's lock as long as one waits."""
    return isinstance(error, DBAPIError) and _classify(error, "") is _LOCKED and not is_rolled_back(error)


def is_unresponsive(error: BaseException) -> bool:
    """Whether the server did not answer in time: whoever asks again at once waits as long once more."""
    return _sqlstate(error) == NO_ANSWER


def is_disconnected(error: BaseException) -> bool:
    """Whether the connection broke. Before the commit was sent, nothing of the transaction can have stayed."""
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
    # What a server says of a value stands in the lines after the first (DETAIL, LINE), and in those of bad data.
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines and not _sqlstate(error).startswith("22") else type(error.orig).__name__


def _sqlstate(error: BaseException) -> str:
    """SQLSTATE of PostgreSQL; empty for SQLite, and where there is none."""
    return (getattr(error.orig, "sqlstate", None) or "") if isinstance(error, DBAPIError) else ""
