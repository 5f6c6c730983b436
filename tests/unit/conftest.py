"""Unit tests that have a database run on both kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from databases import BOTH
from stage import Stage


@pytest.fixture(params=BOTH)
def database_kind(request: pytest.FixtureRequest) -> str:
    """SQLite, then PostgreSQL."""
    return request.param


@pytest.fixture
def at_once():
    """Runs `work(0)` … `work(times - 1)` on threads that start together; the results, in order."""

    def run(work: Callable[[int], Any], times: int) -> list[Any]:
        start = threading.Barrier(times)

        def one(number: int) -> Any:
            start.wait(10)
            return work(number)

        with ThreadPoolExecutor(times) as threads:
            return [each.result(30) for each in [threads.submit(one, number) for number in range(times)]]

    return run


@pytest.fixture
def writers(stage: Stage) -> Iterator[list[Writer]]:
    """Writers of four processes, as far as the database can tell."""
    databases = [Database(stage.database.url) for _ in range(4)]
    # On PostgreSQL a lock of ours would let them write one after the other, and nothing would race.
    lock = stage.root / "write.lock" if stage.database.is_sqlite else None
    made = [Writer(database, lock) for database in databases]
    yield made
    for writer in made:
        writer.close()
    for database in databases:
        database.close()
