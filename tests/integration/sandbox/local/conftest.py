"""Local sandboxes, behind bubblewrap and without a wall."""

from __future__ import annotations

import pytest

from local_sandboxes import local_sandboxes, plain
from sandboxes import spec


@pytest.fixture(scope="module", params=["bubblewrap", "plain"])
def sandboxes(request):
    found = plain() if request.param == "plain" else request.getfixturevalue("bubblewrap_here")
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
