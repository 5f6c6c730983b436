"""Redis, PostgreSQL and SQLite of one test, which can be taken away and restored."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import text

import postgres_cluster
from codesdk.provision.servers import redis_server
from codesdk.storage.database import Database
from codesdk.storage.timeouts import NO_TIMEOUT
from databases import POSTGRES_DIRECTORY

DEADLINE_S = 60.0


class Outage(Protocol):
    """Something that can be taken away, and given back."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class OwnRedis:
    """A Redis that this test may kill and freeze."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="codesdk-tests-"))
        self._opened = ExitStack()
        self._opened.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.server = self._start()

    def _start(self) -> redis_server.RedisServer:
        server = redis_server.ensure(self.place, lambda _: None)
        self._opened.callback(server.stop)
        return server

    @property
    def url(self) -> str:
        return self.server.url

    def signal(self, number: int) -> None:
        assert self.server.process is not None
        os.kill(self.server.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.server.process is not None
        assert self.server.process.wait(DEADLINE_S)

    def start(self) -> None:
        self.server = self._start()

    def close(self) -> None:
        if self.server.process is not None and self.server.process.alive:
            self.signal(signal.SIGCONT)
        self._opened.close()


class OwnPostgres:
    """A PostgreSQL that this test may stop and freeze."""

    def __init__(self) -> None:
        place = Path(tempfile.mkdtemp(prefix=POSTGRES_DIRECTORY))  # not below tmp_path, which is root's alone
        self.server = postgres_cluster.ensure(place, lambda _: None)
        self._numbers = 0
        self.newest = ""
        """The URL of the database that was made last."""

    def database(self) -> str:
        """The URL of a new database."""
        self._numbers += 1
        name = f"outage_{self._numbers}"
        self.administer(f"CREATE DATABASE {name}")
        self.newest = self.server.url_of(name)
        return self.newest

    def administer(self, statement: str) -> None:
        database = Database(self.server.url, NO_TIMEOUT)
        try:
            with database.read() as connection:
                connection.execute(text(statement))
        finally:
            database.close()

    def cut(self) -> None:
        """End each connection of clients, one by one."""
        self.administer(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def signal(self, number: int) -> None:
        """To the server and then to its children."""
        os.kill(self.server.process.pid, number)
        for child in _children(self.server.process.pid):
            with suppress(ProcessLookupError):  # it goes on, and may end before it is told to
                os.kill(child, number)

    def close(self) -> None:
        if self.server.process.alive:
            self.signal(signal.SIGCONT)
        self.server.stop()


class LockedPostgres:
    """An operator's statement that locks the table of calls for minutes, in the newest database."""

    def __init__(self, own: OwnPostgres) -> None:
        self._own = own
        self._held = ExitStack()

    def begin(self) -> None:
        database = Database(self._own.newest, NO_TIMEOUT)
        self._held.callback(database.close)
        connection = self._held.enter_context(database.writer.connect())
        connection.execute(text(f"SET idle_in_transaction_session_timeout = {int(DEADLINE_S * 10 * 1000)}"))
        connection.execute(text("LOCK TABLE tool_calls"))

    def end(self) -> None:
        self._held.close()


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent:
            found.append(int(stat.parent.name))
    return found


class LockedSqlite:
    """Another program that holds SQLite's write lock, as a shell with an open transaction does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._held = sqlite3.connect(self._path, isolation_level=None, timeout=DEADLINE_S, check_same_thread=False)
        self._held.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        if self._held is not None:
            self._held.execute("ROLLBACK")
            self._held.close()
            self._held = None


class Turn:
    """An outage of two functions."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None] = lambda: None) -> None:
        self.begin, self.end = begin, end
