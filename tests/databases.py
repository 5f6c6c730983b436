"""Databases for tests, of both kinds: empty or migrated, one per test."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import text

from codesdk.errors import Fault
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from codesdk.storage.schema import metadata
from codesdk.storage.timeouts import NO_TIMEOUT
from postgres_cluster import PostgresServer

BOTH = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgres)]
"""For a fixture `database_kind`: a test that has a database runs on each of these."""
ON_BOTH = pytest.mark.parametrize("database_kind", BOTH)
"""Above a test whose fact is worth its second database: the core flows of a call, not each of their details."""
EVERY = [*BOTH, pytest.param("memory")]
"""Likewise, and in memory."""
ONLY_SQLITE = pytest.mark.parametrize("database_kind", ["sqlite"])
ONLY_POSTGRESQL = pytest.mark.parametrize("database_kind", [BOTH[1]])
"""Above a test whose fact is of one kind alone."""
POSTGRES_DIRECTORY = "codesdk-pg-"
"""How the directories of clusters begin, so that the next run finds what a killed one left."""
TEMPLATE = "codesdk_template"
LENT = 50
"""Tests that have the same database, one after the other."""
GROWTH = 4 * 1024 * 1024
"""Bytes by which a database may have grown to be lent again: deleted rows take place, and time, until they are vacuumed."""
_EMPTIED = "SET session_replication_role = replica; " + "; ".join(
    f"DELETE FROM {t.name}" for t in metadata.sorted_tables
)
"""Without the foreign keys' triggers, so in any order."""
_STATE = """
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
  SELECT 'relation ' || relname || relkind::text || coalesce(relacl::text, '') AS line
    FROM pg_class WHERE relnamespace = 'public'::regnamespace
  UNION ALL SELECT 'column ' || c.relname || a.attname || a.atttypid || a.atttypmod || a.attnotnull
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'public'::regnamespace
  UNION ALL SELECT 'constraint ' || conname || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
  UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
  UNION ALL SELECT 'statistics ' || count(*)
    FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid WHERE c.relnamespace = 'public'::regnamespace
  UNION ALL SELECT 'setting ' || setconfig::text FROM pg_db_role_setting s
    JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()
  UNION ALL SELECT 'version ' || version_num FROM alembic_version
) AS lines
"""
"""All that a test could have left behind beside rows."""
_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"


class SharedStatements(dict):
    """Compiled statements of all engines. Each engine has its own by default, and compiling takes most of a short test."""

    @staticmethod
    def _key(key: tuple) -> tuple:
        dialect, *rest = key  # a value of each engine; those of one driver compile alike
        return dialect.name, dialect.driver, *rest

    def get(self, key, default=None):
        return super().get(self._key(key), default)

    def __setitem__(self, key, value):
        super().__setitem__(self._key(key), value)


@cache
def sqlite_template() -> Database:
    """An empty database of this version, in memory: copying it takes milliseconds, migrating half a second."""
    database = Database.in_memory()
    upgrade(database)
    return database


def copy_template(target: Database) -> None:
    """Make an SQLite database without tables one of this version."""
    with sqlite_template().reader.connect() as source, target.writer.connect() as connection:
        source.connection.dbapi_connection.backup(connection.connection.dbapi_connection)


class SqliteDatabases:
    """Files in the test's directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._numbers = itertools.count()

    def empty(self) -> str:
        """The URL of a database without tables."""
        return f"sqlite:///{self._root / f'empty-{next(self._numbers)}.db'}"

    def migrated(self) -> str:
        """The URL of an empty database of this version."""
        url = f"sqlite:///{self._root / 'codesdk.db'}"
        with closing(Database(url)) as database:
            copy_template(database)
        return url

    def close(self) -> None:
        """The files go with the directory."""


class MemoryDatabases:
    """SQLite in this process's memory."""

    def __init__(self) -> None:
        self._kept: list[Database] = []

    def empty(self) -> str:
        """The URL of a database without tables."""
        self._kept.append(Database.in_memory())
        return self._kept[-1].url.render_as_string()

    def migrated(self) -> str:
        """The URL of an empty database of this version."""
        url = self.empty()
        copy_template(self._kept[-1])
        return url

    def close(self) -> None:
        """Let them go."""
        for database in self._kept:
            database.close()


class PostgresDatabases:
    """Databases of the run's cluster. One that a test leaves as it got it, but for rows, is emptied and lent again.

    Making and dropping one costs a tenth of a second, emptying it some milliseconds.
    """

    _numbers = itertools.count()
    _free: ClassVar[dict[str, list[str]]] = {}
    """By the server's URL: empty databases of this version."""
    _lent: ClassVar[Counter[str]] = Counter()
    _states: ClassVar[dict[str, tuple[str, int]]] = {}
    """By the server's URL: the template's state and size."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._made: list[str] = []
        self._migrated: list[str] = []

    def empty(self) -> str:
        """The URL of a database without tables."""
        return self._make("template0")

    def migrated(self) -> str:
        """The URL of an empty database of this version."""
        free = self._free.setdefault(self._server.url, [])
        if free:
            name = free.pop()
        else:
            self._template()
            name = self._name(self._make(TEMPLATE))
        self._lent[name] += 1
        self._migrated.append(name)
        return self._server.url_of(name)

    def close(self) -> None:
        """Take them back, or drop them, whoever is still connected."""
        again = [name for name in self._migrated if self._emptied(name)]
        self._free.setdefault(self._server.url, []).extend(again)
        if dropped := [name for name in self._all() if name not in again]:
            with _administering(self._server) as run:
                for name in dropped:
                    run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _all(self) -> list[str]:
        return list(dict.fromkeys([*self._made, *self._migrated]))

    def _template(self) -> None:
        with _administering(self._server) as run:
            if not run(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):
                run(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0 STRATEGY file_copy")
                with closing(Database(self._server.url_of(TEMPLATE))) as database:
                    upgrade(database)
                with _administering(self._server, TEMPLATE) as inside:
                    self._states[self._server.url] = _state(inside)

    def _emptied(self, name: str) -> bool:
        """Whether it is as it was lent; its rows are gone then."""
        if self._lent[name] >= LENT:
            return False
        try:
            with _administering(self._server, name) as run:
                for _ in range(20):  # who has just closed a connection may still be seen
                    if run(_CONNECTED.format(name=name))[0][0] == 1:
                        break
                    time.sleep(0.01)
                else:
                    return False
                state, size = _state(run)
                before, before_size = self._states[self._server.url]
                if state != before or size > before_size + GROWTH:
                    return False
                run(_EMPTIED)
        except Fault:
            return False
        return True

    @staticmethod
    def _name(url: str) -> str:
        return url.rpartition("/")[2].partition("?")[0]

    def _make(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        with _administering(self._server) as run:
            run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        self._made.append(name)
        return self._server.url_of(name)


Databases = SqliteDatabases | PostgresDatabases | MemoryDatabases


def _state(run) -> tuple[str, int]:
    return run(_STATE)[0][0], run("SELECT pg_database_size(current_database())")[0][0]


@contextmanager
def _administering(server: PostgresServer, name: str = "") -> Iterator:
    url = server.url_of(name) if name else server.url
    with closing(Database(url, NO_TIMEOUT)) as database, database.read() as connection:

        def run(statement):
            done = connection.execute(text(statement))
            return done.all() if done.returns_rows else None

        yield run
