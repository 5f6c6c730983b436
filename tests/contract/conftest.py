"""Fixtures of the core's tests; a stage is a whole core on a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
