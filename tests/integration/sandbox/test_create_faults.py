"""A sandbox whose creation fails at any step leaves nothing, whether an engine call fails or the worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/ is no package

import tripping

from codesdk.errors import Fault
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port import FileWrite
from codesdk.sandbox.port.faults import EngineUnavailable
from sandboxes import spec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
MOST_CALLS = 30


class Site:
    """Sandboxes on an engine that trips."""

    def __init__(self, host: str, image: str, workspaces: Path) -> None:
        self.engine = tripping.TrippingEngine(host)
        self.instance = f"test-{uuid.uuid4().hex}"
        self.workspaces = workspaces
        self.image = image
        self.sandboxes = DockerSandboxes(self.instance, self.engine, workspaces=workspaces)

    def spec(self):
        return spec(self.instance, self.image)

    def left(self) -> dict[str, int]:
        self.engine.arm(None)
        wanted = {"label": f"codesdk.instance={self.instance}"}
        backing = [entry.read_text() for entry in Path("/sys/block").glob("loop*/loop/backing_file")]
        return {
            "containers": len(self.engine.api.containers(all=True, filters=wanted)),
            "volumes": len(self.engine.api.volumes(filters=wanted)["Volumes"] or []),
            "devices": sum(str(self.workspaces) in file for file in backing),
            "files": len(list(self.workspaces.glob("*"))),
        }


NOTHING = {"containers": 0, "volumes": 0, "devices": 0, "files": 0}


@pytest.fixture
def site(engine, sandbox_image, tmp_path):
    made = Site(engine.host, sandbox_image, tmp_path / "workspaces")
    yield made
    made.engine.arm(None)
    made.sandboxes.sweep(())
    made.sandboxes.close()


def fail_at(number: int, side: str, *, for_good: bool) -> tripping.Trip:
    def trip(now: int, here: str) -> None:
        if (now, here) == (number, side) or (for_good and now > number):
            raise EngineUnavailable("the test's", f"call {number}, {side}")

    return trip


def opens(site: Site, trip: tripping.Trip) -> bool:
    asked = site.spec()
    site.engine.arm(trip)
    try:
        site.sandboxes.open(asked)
    except Fault:
        return False
    site.engine.arm(None)
    site.sandboxes.destroy(asked.owner)
    return True


@pytest.mark.parametrize("side", ["before", "after"])
def test_each_engine_call_of_an_open_may_fail_and_nothing_is_left(site, side):
    steps = 0
    for number in range(1, MOST_CALLS):
        if opens(site, fail_at(number, side, for_good=False)):
            break
        steps += 1
        assert site.left() == NOTHING, f"after call {number}"
    assert 6 <= steps < MOST_CALLS - 1
    assert site.left() == NOTHING


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_engine_that_goes_away_at_any_call_leaves_nothing_that_a_sweep_does_not_find(site, side):
    for number in range(1, MOST_CALLS):
        if opens(site, fail_at(number, side, for_good=True)):
            break
        site.engine.arm(None)
        site.sandboxes.sweep(())
        assert site.left() == NOTHING, f"after call {number}"
    else:
        pytest.fail("no open came through")


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_engine_that_goes_away_at_any_call_of_a_stop_or_a_start_never_takes_the_workspace(site, side):
    """As a worker that is killed there: nothing that it would do afterwards reaches the engine."""
    asked = site.spec()
    made = site.sandboxes.open(asked)
    made.files.write((FileWrite(path="kept", content=b"kept"),))
    for step, least in ((lambda: site.sandboxes.stop(asked.owner), 2), (lambda: site.sandboxes.start(asked), 8)):
        for number in range(1, MOST_CALLS):
            site.engine.arm(fail_at(number, side, for_good=True))
            try:
                step()
            except Fault:
                continue
            break
        assert number > least
    site.engine.arm(None)
    site.sandboxes.close()
    # The next worker, to which the rows say `starting`.
    site.sandboxes = DockerSandboxes(site.instance, site.engine, workspaces=site.workspaces)
    again = site.sandboxes.start(asked)
    assert again.files.read("kept").data == b"kept"
    assert again.attestation.disk_cap == made.attestation.disk_cap
    site.sandboxes.destroy(asked.owner)
    assert site.left() == NOTHING


def test_a_worker_killed_at_each_step_of_an_open_leaves_nothing_that_the_next_one_does_not_find(site, engine):
    text = site.spec().model_dump_json()
    ran = subprocess.run(
        [sys.executable, tripping.__file__, engine.host, str(site.workspaces), text],
        capture_output=True,
        timeout=100,
        check=True,
    )
    told = json.loads(ran.stdout)
    assert told["steps"] >= 6
    assert told["died"] == 2 * told["steps"]
    assert site.left()["containers"] > 0
    neighbour = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), workspaces=site.workspaces / "other")
    assert neighbour.sweep(()).containers == ()
    neighbour.close()
    site.sandboxes.sweep(())
    assert site.left() == NOTHING
