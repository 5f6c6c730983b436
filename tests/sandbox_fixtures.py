"""Fixtures of Docker sandboxes, for the folders whose conftest names them."""

from __future__ import annotations

import pytest

from sandboxes import docker_sandboxes, spec


@pytest.fixture(scope="module")
def sandboxes(engine):
    with docker_sandboxes(engine.host) as made:
        yield made


@pytest.fixture
def make_spec(sandboxes, sandbox_image):
    return lambda **more: spec(sandboxes._instance, more.pop("image", sandbox_image), **more)


@pytest.fixture
def open_sandbox(sandboxes, make_spec):
    """Opens sandboxes that are destroyed when the test is over."""
    owners = []

    def open_one(**more):
        asked = make_spec(**more)
        owners.append(asked.owner)
        return sandboxes.open(asked)

    yield open_one
    for owner in owners:
        sandboxes.destroy(owner)


@pytest.fixture(scope="module")
def sandbox(sandboxes, sandbox_image):
    """One sandbox for tests that do no harm to it."""
    made = sandboxes.open(spec(sandboxes._instance, sandbox_image))
    yield made
    sandboxes.destroy(made.owner)
