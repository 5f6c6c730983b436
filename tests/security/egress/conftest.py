"""A proxy with the tests' own names, and a certificate authority."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from pathlib import Path

import pytest

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.local.driver import LocalSandboxes
from egress_stage import Attempts, Authority, HttpServer, rules, staged
from sandboxes import spec


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
    with (
        Attempts.served() as attempts,
        _swept(DockerSandboxes(_instance(), Engine(engine.host), egress=attempts.egress)) as made,
    ):
        yield made, attempts


@pytest.fixture(scope="module")
def local_world(bubblewrap_here):
    """The same of local sandboxes."""
    with (
        Attempts.served() as attempts,
        tempfile.TemporaryDirectory(prefix="codesdk-local-") as folder,
        _swept(LocalSandboxes(_instance(), Path(folder) / "local", bubblewrap_here, egress=attempts.egress)) as made,
    ):
        yield made, attempts


def _instance() -> str:
    return f"test-{uuid.uuid4().hex}"


@contextlib.contextmanager
def _swept(made):
    try:
        yield made
    finally:
        made.sweep(())
        made.close()


@pytest.fixture(scope="module")
def site():
    """A server that a rule may allow."""
    server = HttpServer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    yield server
    server.close()


@pytest.fixture(scope="module")
def allowed(site):
    """Names beneath `web.test` lead to the site."""
    return rules({"host": "*.web.test", "protocol": "http", "ports": [site.port]})


@pytest.fixture(scope="module")
def sandbox(world, sandbox_image, allowed):
    """A container whose profile has these rules."""
    made = world[0].open(spec(world[0]._instance, sandbox_image, egress=allowed))
    yield made
    world[0].destroy(made.owner)


@pytest.fixture
def attempts(world):
    """What its proxy has recorded since the test began."""
    world[1].clear()
    return world[1]


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.engine), "local"])
def place(request, allowed):
    """A sandbox with these rules, and what its proxy records: of each driver."""
    name = {"docker": "world", "local": "local_world"}[request.param]
    sandboxes, recorded = request.getfixturevalue(name)
    image = sandboxes.image if request.param == "local" else request.getfixturevalue("sandbox_image")
    made = sandboxes.open(spec(sandboxes._instance, image, egress=allowed))
    yield made, recorded
    sandboxes.destroy(made.owner)
