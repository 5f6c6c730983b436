"""Timeouts for statements and connections of PostgreSQL.

Neither driver nor kernel notices a server that hangs while its connections stay up: stopped processes, a hanging disk,
dropped packets. So every wait on a connection has a timeout here. When it expires, the connection is closed, and the
rest of the code sees an ordinary broken connection.
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
"""Default for the seconds of silence after which a statement is given up. Below 60 s, the shortest call timeout of the
agent CLIs.
"""
NO_TIMEOUT = 0.0
"""No limit."""
BREAKER_OPEN_S = 1.0
"""Seconds after a timeout during which other requests fail at once instead of waiting for the same silence."""
IDLE_TRANSACTION_S = 15.0
"""Seconds that one of our transactions may be idle (a stopped process) before PostgreSQL ends it and frees its rows.

Well below a host's lease: a heartbeat may have to wait for such a row, and its host must not count as lost for that.
"""
CONNECT_TIMEOUT_S = 10.0
"""Seconds to connect to PostgreSQL. The driver takes whole seconds, at least two."""


class ServerTimeouts:
    """The timeouts of one database. Each leaves time for those before it, so the most specific error comes first."""

    def __init__(self, answer_s: float = ANSWER_TIMEOUT_S, clock: Clock | None = None) -> None:
        """Compute the timeouts.

        Args:
            answer_s: seconds that the server may be silent; `NO_TIMEOUT`: only locks and new connections are limited.
            clock: the system clock by default, because these waits are for sockets, which no fake clock advances.
        """
        self._clock = clock or SystemClock()
        self.answer_s = answer_s
        given = answer_s or ANSWER_TIMEOUT_S
        self.connect_s = max(2, math.ceil(min(CONNECT_TIMEOUT_S, given)))
        self.stalled_s = min(IDLE_TRANSACTION_S, given / 2)
        self.lock_s = given * 2 / 3
        """For another transaction's lock; longer than a transaction may be idle."""
        self.statement_s = answer_s * 5 / 6
        """For a reader's statement, on the server's clock. 0: no limit."""
        self._breaker_open_until = -math.inf

    def connect(self, dialect: Dialect, _record: object, args: list[Any], more: dict[str, Any]) -> Any:
        """Connect, with a timeout on every wait. Fails at once while the breaker is open."""
        driver: Any = dialect.loaded_dbapi
        self._check_breaker(driver)
        try:
            made: Any = dialect.connect(*args, **more)
        except driver.errors.ConnectionTimeout as error:
            raise self._open_breaker(driver, self.connect_s) from error
        made.wait = _BoundedWait(made, self.answer_s, self._clock, partial(self._open_breaker, driver))
        return made

    def check(self, dialect: Dialect) -> None:
        """Fail at once while the breaker is open; called before a pooled connection is used."""
        self._check_breaker(dialect.loaded_dbapi)

    def _check_breaker(self, driver: Any) -> None:
        if self._clock.monotonic() < self._breaker_open_until:
            raise _timeout_error(driver, "others were waiting for it until now")

    def _open_breaker(self, driver: Any, after_s: float) -> Exception:
        self._breaker_open_until = self._clock.monotonic() + BREAKER_OPEN_S
        return _timeout_error(driver, f"it was waited for {after_s:g} s")


def _timeout_error(driver: Any, words: str) -> Exception:
    error: Exception = driver.OperationalError(words)
    error.sqlstate = NO_ANSWER  # type: ignore[attr-defined]
    return error


class _BoundedWait:
    """Replaces a connection's `wait`, which every statement and commit goes through."""

    def __init__(self, connection: Any, answer_s: float, clock: Clock, silence: Callable[[float], Exception]) -> None:
        self._connection = connection
        self._clock = clock
        self._wait = connection.wait
        self._open_breaker = silence
        self.answer_s = answer_s

    def __call__(self, steps: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
        return self._wait(self._bounded(steps) if self.answer_s else steps, *args, **more)

    def _bounded(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run the driver's steps with a timeout. It sends what the socket is ready for, or nothing every 0.1 s."""
        try:
            wanted = next(steps)
            until = self._clock.monotonic() + self.answer_s
            while True:
                ready = yield wanted
                if ready:
                    until = self._clock.monotonic() + self.answer_s  # a long answer is not silence
                elif self._clock.monotonic() > until:
                    self._connection.close()
                    raise self._open_breaker(self.answer_s)
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value


@contextmanager
def without_timeout(connection: Connection) -> Iterator[None]:
    """Lift the statement timeout within the block, for statements whose duration grows with the stored data.

    The lock timeout stays. Does nothing on SQLite.
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
        if is_reader and not driver.closed:  # the pool reuses the connection
            connection.exec_driver_sql(f"SET statement_timeout = {milliseconds(ServerTimeouts(before).statement_s)}")


def milliseconds(seconds: float) -> int:
    """Convert to the unit of PostgreSQL's settings. 0 stays 0, which means no limit there, too."""
    return math.ceil(seconds * 1000)
