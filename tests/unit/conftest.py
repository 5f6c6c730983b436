"""Fixtures of the core's tests; a stage is a whole core on a temporary directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stage import Stage, make_template, staged


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of this version."""
    return make_template(tmp_path_factory.mktemp("template") / "codesdk.db")


@pytest.fixture
def stage(tmp_path: Path, template: Path) -> Iterator[Stage]:
    """One tenant, one host, one open session, under `stage.POLICY`."""
    with staged(tmp_path, template) as made:
        yield made


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
