"""Timeouts for statements and connections of PostgreSQL.

No driver and no kernel says so of a server that stands still while its connections are up: its processes are stopped,
its disk hangs, its packets are dropped on the way. So each wait of a connection has an end of ours. Beyond it the
connection is closed, which makes of a silence what the rest of the code knows: a connection that broke.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, Dialect

from codesdk.domain.clock import Clock, SystemClock
from codesdk.storage.faults import NO_ANSWER

ANSWER_TIMEOUT_S = 30.0
"""Seconds of silence after which a statement is given up, where no setting says otherwise: below the 60 s that the
shortest-tempered agent CLIs wait for a call."""
NO_TIMEOUT = 0.0
"""In place of such seconds: whatever is asked may take as long as it takes."""
BREAKER_OPEN_S = 1.0
"""Seconds after a silence in which nobody else is made to wait for the same: what has queued up meanwhile is refused."""
IDLE_TRANSACTION_S = 15.0
"""Seconds that a transaction of ours may stand still (a stopped process) before PostgreSQL ends it and frees its rows.

Well below a host's lease: a heartbeat may have to wait for such a row, and its host must not be lost for that."""
CONNECT_TIMEOUT_S = 10.0
"""Seconds for a connection to PostgreSQL; the driver takes whole ones, and two at least."""


class ServerTimeouts:
    """Of one database. Each number leaves the ones before it their time, so that the plainest word comes first."""

    def __init__(self, answer_s: float = ANSWER_TIMEOUT_S, clock: Clock | None = None) -> None:
        """`answer_s`: seconds that the server may be silent; `NO_TIMEOUT`: no end, but for locks and new connections.

        `clock`: the machine's, where none is given: what is waited for here is a socket, for which no other one moves.
        """
        self._clock = clock or SystemClock()
        self.answer_s = answer_s
        given = answer_s or ANSWER_TIMEOUT_S
        self.connect_s = max(2, math.ceil(min(CONNECT_TIMEOUT_S, given)))
        self.stalled_s = min(IDLE_TRANSACTION_S, given / 2)
        self.lock_s = given * 2 / 3
        """For another transaction's lock: longer than one may stand still."""
        self.statement_s = answer_s * 5 / 6
        """For a reader's statement, on the server's clock. 0: no end."""
        self._breaker_open_until = -math.inf

    def connect(self, dialect: Dialect, _record: object, args: list[Any], more: dict[str, Any]) -> Any:
        """Make a connection whose every wait has an end; of a server that was silent just now nobody is asked for one."""
        driver: Any = dialect.loaded_dbapi
        self._check_breaker(driver)
        try:
            made: Any = dialect.connect(*args, **more)
        except driver.errors.ConnectionTimeout as error:
            raise self._open_breaker(driver, self.connect_s) from error
        made.wait = _BoundedWait(made, self.answer_s, self._clock, partial(self._open_breaker, driver))
        return made

    def check(self, dialect: Dialect) -> None:
        """As `connect`, before a connection is used that was made before."""
        self._check_breaker(dialect.loaded_dbapi)

    def _check_breaker(self, driver: Any) -> None:
        if self._clock.monotonic() < self._breaker_open_until:
            raise _timeout_error(driver, "others were waiting for it until just now")

    def _open_breaker(self, driver: Any, after_s: float) -> Exception:
        self._breaker_open_until = self._clock.monotonic() + BREAKER_OPEN_S
        return _timeout_error(driver, f"it was waited for {after_s:g} s")


def _timeout_error(driver: Any, words: str) -> Exception:
    error: Exception = driver.OperationalError(words)
    error.sqlstate = NO_ANSWER  # type: ignore[attr-defined]
    return error


class _BoundedWait:
    """In place of a connection's own `wait`, which every statement and commit goes through."""

    def __init__(self, connection: Any, answer_s: float, clock: Clock, silence: Callable[[float], Exception]) -> None:
        self._connection = connection
        self._clock = clock
        self._wait = connection.wait
        self._open_breaker = silence
        self.answer_s = answer_s

    def __call__(self, steps: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
        return self._wait(self._bounded(steps) if self.answer_s else steps, *args, **more)

    def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The driver's own steps: it sends each what is ready on the socket, or ten times a second that nothing is."""
        try:
            wanted = next(steps)
            until = self._clock.monotonic() + self.answer_s
            while True:
                ready = yield wanted
                if ready:
                    until = self._clock.monotonic() + self.answer_s  # a long answer is no silence
                elif self._clock.monotonic() > until:
                    self._connection.close()
                    raise self._open_breaker(self.answer_s)
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value


@contextmanager
def without_timeout(connection: Connection) -> Iterator[None]:
    """Let the statements of the block take as long as they take: for those whose work grows with what is stored.

    Locks are waited for no longer than else. On SQLite nothing needs lifting.
    """
    driver: Any = connection.connection.driver_connection
    wait = getattr(driver, "wait", None)
    if not isinstance(wait, _BoundedWait) or not wait.answer_s:
        yield
        return
    is_reader = driver.autocommit
    before, wait.answer_s = wait.answer_s, NO_TIMEOUT
    try:
        if is_reader:
            connection.exec_driver_sql("SET statement_timeout = 0")
        yield
    finally:
        wait.answer_s = before
        if is_reader and not driver.closed:  # the pool lends it again
            connection.exec_driver_sql(f"SET statement_timeout = {milliseconds(ServerTimeouts(before).statement_s)}")


def milliseconds(seconds: float) -> int:
    """As PostgreSQL's settings take them; 0 stays 0, which is "no end" there, too."""
    return math.ceil(seconds * 1000)
