from __future__ import annotations

import pytest

from databases import SqliteDatabases
from sandbox_fixtures import sandboxes
from source_stage import source_stage
from stage import staged

__all__ = ["sandboxes"]


@pytest.fixture(scope="module")
def accepted(sandboxes, sandbox_image, tmp_path_factory):
    """A stage for many facts: an accepted server, in a container of its own."""
    root = tmp_path_factory.mktemp("hostile")
    databases = SqliteDatabases(root)
    with staged(root, databases.migrated()) as stage, source_stage(stage, sandboxes, sandbox_image) as made:
        yield made
    databases.close()


@pytest.fixture
def fx(accepted):
    """The accepted server, for which nothing that went wrong before counts."""
    accepted.clock.ahead += 3600
    accepted.desk.tend()
    return accepted
