from __future__ import annotations

import pytest

from databases import SqliteDatabases
from local_sandboxes import local_sandboxes, plain
from source_stage import source_stage
from stage import staged


@pytest.fixture(scope="module")
def here():
    """Sandboxes without an engine: what is tested here is the conversation, not the wall."""
    with local_sandboxes(plain()) as made:
        yield made


@pytest.fixture(scope="module")
def fx(here, tmp_path_factory):
    """An accepted server, for tests that leave nothing behind which another could see."""
    root = tmp_path_factory.mktemp("sources")
    databases = SqliteDatabases(root)
    with staged(root, databases.migrated()) as stage, source_stage(stage, here, here.image) as made:
        yield made
    databases.close()


@pytest.fixture
def own(here, fx, stage):
    """An accepted server of the test's own."""
    with source_stage(stage, here, here.image, pins=(fx.tools / "fx.pins.json").read_text()) as made:
        yield made
