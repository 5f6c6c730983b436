"""The runner on every supported Python of an image, in real containers: 3.9, 3.10, 3.12, 3.13 and our base's 3.11.

The interpreters are those of this machine; a missing version is skipped with that reason.
"""

from __future__ import annotations

import pytest

from codesdk.sandbox.selfcheck import behaviour_exec_exit, behaviour_exec_io, behaviour_files, suite
from codesdk.sandbox.selfcheck.probe import Status
from other_pythons import VERSIONS, build, find
from sandboxes import run, spec
from selfcheck_bench import bench_on

pytestmark = pytest.mark.engine

PROBES = (*behaviour_exec_io.PROBES, *behaviour_exec_exit.PROBES[::4], *behaviour_files.PROBES[::4])
"""A part: all of them take half a minute for each version. Every one passed on each when this was written."""


@pytest.fixture(scope="module", params=VERSIONS)
def other(request, sandboxes, sandbox_image):
    """(version, image)."""
    prefix = find(request.param)
    if prefix is None:
        pytest.skip(f"there is no python{request.param} on PATH or among pyenv's versions")
    engine = sandboxes._engine
    image = build(engine, sandbox_image, request.param, prefix)
    yield request.param, image
    engine.client.images.remove(image, force=True)


def test_the_runner_itself_runs_on_that_python(sandboxes, other):
    version, image = other
    made = sandboxes.open(spec(sandboxes._instance, image))
    try:
        assert made.observe()["python"].startswith(f"{version}.")
        assert run(made, "python3", "--version").stdout.startswith(f"Python {version}.".encode())
        assert run(made, "python3", "-c", "import warnings, sys; print(len(sys.argv))").stderr == b""
    finally:
        sandboxes.destroy(made.owner)


def test_execs_files_and_ends_behave_on_that_python_as_on_any(sandboxes, other):
    _, image = other
    outcomes = list(suite.run(bench_on(sandboxes, sandboxes._instance, image), PROBES))
    assert [item for item in outcomes if item.status is Status.FAIL] == []
    assert len([item for item in outcomes if item.status is Status.PASS]) > len(outcomes) * 0.8
