"""Local sandboxes of one test, in each way that this machine supports; and their fixtures."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codesdk.sandbox.local.cgroups import NO_CGROUPS
from codesdk.sandbox.local.confinement import Confinement, detect_confinement
from codesdk.sandbox.local.driver import LocalSandboxes
from sandboxes import spec


def plain() -> Confinement:
    """Without a wall."""
    return detect_confinement("")


@contextmanager
def local_sandboxes(found: Confinement) -> Iterator[LocalSandboxes]:
    """Sandboxes of an installation of their own; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="codesdk-local-") as folder:
        made = LocalSandboxes(f"test-{uuid.uuid4().hex}", Path(folder) / "local", found)
        try:
            yield made
        finally:
            made.sweep(())
            made.close()


@pytest.fixture(scope="module", params=["bubblewrap", "plain", "uncapped"])
def sandboxes(request):
    """Uncapped: as on a machine where no cgroup may be made, without a wall."""
    found = request.getfixturevalue("bubblewrap_here") if request.param == "bubblewrap" else plain()
    if request.param == "uncapped":
        found = found.model_copy(update={"groups": NO_CGROUPS})
    with local_sandboxes(found) as made:
        yield made


@pytest.fixture
def make_spec(sandboxes):
    return lambda **more: spec(sandboxes._instance, more.pop("image", sandboxes.image), **more)


@pytest.fixture
def opened(sandboxes, make_spec):
    """One sandbox of the test's own."""
    made = sandboxes.open(make_spec())
    yield made
    sandboxes.destroy(made.owner)
