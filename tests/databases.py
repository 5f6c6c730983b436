"""Databases for tests, of either kind: empty or migrated, each a test's own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from codesdk.provision.postgres import PostgresServer
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade

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


class SqliteDatabases:
    """Files in the test's directory."""

    def __init__(self, root: Path, template: Path) -> None:
        self._root = root
        self._template = template
        self._numbers = itertools.count()

    def empty(self) -> str:
        """The URL of a database without tables."""
        return f"sqlite:///{self._root / f'empty-{next(self._numbers)}.db'}"

    def migrated(self) -> str:
        """The URL of an empty database of this version: a copy, where migrating each would cost a tenth of a second."""
        place = self._root / "codesdk.db"
        shutil.copy(self._template, place)
        return f"sqlite:///{place}"

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
        upgrade(self._kept[-1])
        return url

    def close(self) -> None:
        """Let them go."""
        for database in self._kept:
            database.close()


class PostgresDatabases:
    """Databases of the run's cluster."""

    _numbers = itertools.count()

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._made: list[str] = []

    def empty(self) -> str:
        """The URL of a database without tables."""
        return self._make("template0")

    def migrated(self) -> str:
        """The URL of an empty database of this version."""
        with _administering(self._server) as run:
            if not run(f"SELECT 1 FROM pg_database WHERE datname = '{TEMPLATE}'"):
                run(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0 STRATEGY file_copy")
                with closing(Database(self._server.url_of(TEMPLATE))) as database:
                    upgrade(database)
        return self._make(TEMPLATE)

    def close(self) -> None:
        """Drop them, whoever is still connected."""
        with _administering(self._server) as run:
            for name in self._made:
                run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _make(self, template: str) -> str:
        name = f"test_{next(self._numbers)}"
        with _administering(self._server) as run:
            run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        self._made.append(name)
        return self._server.url_of(name)


Databases = SqliteDatabases | PostgresDatabases | MemoryDatabases


@contextmanager
def _administering(server: PostgresServer) -> Iterator:
    with closing(Database(server.url)) as database, database.read() as connection:

        def run(statement):
            done = connection.execute(text(statement))
            return done.all() if done.returns_rows else None

        yield run
