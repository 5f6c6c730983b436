"""A proxy with names of the test's own, and a certificate authority."""

from __future__ import annotations

import pytest

from egress_stage import Authority, HttpServer, staged


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
