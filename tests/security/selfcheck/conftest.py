"""The self check on this machine's engine."""

from __future__ import annotations

import pytest

from sandboxes import docker_sandboxes
from selfcheck_bench import bench_on


@pytest.fixture(scope="module")
def runc(engine, sandbox_image):
    with docker_sandboxes(engine.host) as made:
        bench = bench_on(made, made._instance, sandbox_image)
        yield bench
        bench.close()
