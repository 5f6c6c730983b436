"""A proxy with names of the test's own, and a certificate authority."""

from __future__ import annotations

import uuid

import pytest

from codesdk.sandbox.docker_driver import DockerSandboxes
from codesdk.sandbox.engine import Engine
from egress_stage import Attempts, Authority, HttpServer, staged


@pytest.fixture
def stage():
    with staged() as made:
        yield made


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def web():
    """A plain HTTP server on loopback."""
    server = HttpServer()
    yield server
    server.close()


@pytest.fixture
def make_server():
    made = []

    def make(factory, *arguments, **more):
        made.append(factory(*arguments, **more))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(scope="module")
def world(engine):
    """Sandboxes, and a proxy for which every name beneath `.test` is this machine's loopback."""
    with Attempts.served() as attempts:
        made = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), egress=attempts.egress)
        try:
            yield made, attempts
        finally:
            made.sweep(())
            made.close()
