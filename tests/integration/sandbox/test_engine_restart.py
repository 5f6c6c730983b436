"""Sandboxes whose engine is restarted, on the tests' own engine."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
import uuid

import pytest

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.docker.lost_containers import _belongs_to, _foreign_processes, _is_namespace_init
from codesdk.sandbox.isolation.spec import container_name
from codesdk.sandbox.port import ExitKind, SandboxMissing
from codesdk.sandbox.port.faults import CallCancelled, EngineRestarted, EngineUnavailable, SandboxGone
from own_engine import OWN_ENGINE, running
from sandboxes import request, run, spec

pytestmark = OWN_ENGINE


@pytest.fixture(scope="module")
def own(engine, sandbox_image, tmp_path_factory):
    with running(tmp_path_factory.mktemp("own"), sandbox_image, engine) as made:
        yield made


@pytest.fixture
def sandboxes(own):
    made = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(own.places.host))
    yield made
    swept = made.sweep(())
    left = made._engine.api.containers(all=True), made._engine.api.volumes()["Volumes"] or []
    made.close()
    assert left == ([], []), swept


def ask(sandbox, *argv, on_output=lambda _: None):
    """An exec on a thread; `.outcome` is its result or its fault."""

    def work():
        try:
            thread.outcome = sandbox.exec(request(*argv, call="held", timeout_s=90), on_output)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            thread.outcome = error

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def begin(sandbox, *argv):
    """One that has begun."""
    begun = threading.Event()
    thread = ask(sandbox, *argv, on_output=lambda _: begun.set())
    assert begun.wait(20)
    return thread


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_call_under_way_ends_as_the_engines_restart_and_the_sandbox_is_gone_for_good(
    own, sandboxes, sandbox_image, how
):
    asked = spec(sandboxes._instance, sandbox_image)
    sandbox = sandboxes.open(asked)
    held = begin(sandbox, "sh", "-c", "echo begun; sleep 80")
    getattr(own, how)()
    own.start()
    held.join(60)
    assert isinstance(held.outcome, EngineRestarted), held.outcome
    assert held.outcome.code == "ENGINE_RESTARTED"
    found = sandboxes.reattach(asked.owner, 2)
    assert isinstance(found, SandboxMissing)
    assert "engine was restarted" in found.reason
    with pytest.raises(EngineRestarted):
        sandbox.files.stat(".")
    # The owner's next sandbox is another's row: what is left of this one is removed by the sweep, as ever.
    assert sandboxes.sweep(()).containers == (asked.owner,)
    assert run(sandboxes.open(spec(sandboxes._instance, sandbox_image)), "true").result.exit_code == 0


def test_an_idle_sandbox_is_found_to_have_ended_with_its_engine(own, sandboxes, sandbox_image):
    sandbox = sandboxes.open(spec(sandboxes._instance, sandbox_image))
    own.stop()
    own.start()
    with pytest.raises(EngineRestarted):
        run(sandbox, "true")


def test_a_container_that_was_killed_or_ran_out_of_memory_is_told_apart_from_a_restart(own, sandboxes, sandbox_image):
    killed = sandboxes.open(spec(sandboxes._instance, sandbox_image))
    (found,) = sandboxes._engine.api.containers(filters={"label": f"codesdk.owner={killed.owner}"})
    sandboxes._engine.api.kill(found["Id"])
    with pytest.raises(SandboxGone) as gone:
        run(killed, "true")
    assert not isinstance(gone.value, EngineRestarted)
    assert "exit code 137" in gone.value.message
    hungry = sandboxes.open(spec(sandboxes._instance, sandbox_image, memory_bytes=64 << 20))
    ran = run(hungry, "python3", "-c", "x = bytearray(1 << 30)")
    assert ran.result.kind is ExitKind.OOM_KILLED


@pytest.fixture
def forgetful(own, sandboxes, sandbox_image, tmp_path):
    """A sandbox with a disk of its own and a program under way, whose engine came back and has forgotten it."""
    made = DockerSandboxes(sandboxes._instance, Engine(own.places.host), workspaces=tmp_path / "workspaces")
    asked = spec(made._instance, sandbox_image)
    try:
        held = begin(made.open(asked), "sh", "-c", "echo begun; while sleep 0.1; do date +%N >now; done")
        own.kill()
        for place in own.places.exec_root.glob("containerd/daemon/io.containerd.runtime.v2.task/moby/*"):
            # As it is when the engine dies before it has written down what it starts.
            subprocess.run(["umount", "--lazy", str(place / "rootfs")], check=False, capture_output=True)
            shutil.rmtree(place)
        own.start()
        held.join(60)
        assert isinstance(held.outcome, EngineRestarted), held.outcome
        assert inits_of(asked) != []
        yield made, asked
    finally:
        made.destroy(asked.owner)
        made.close()
    assert list(tmp_path.glob("workspaces/*")) == []  # where this machine has loop devices


def inits_of(asked):
    """First processes of a sandbox's containers, as the machine sees them."""
    name = container_name(asked.instance, asked.owner)
    return [pid for pid in _foreign_processes() if _is_namespace_init(pid) and _belongs_to(pid, name, lambda: None)]


def test_what_an_engine_forgot_is_ended_before_its_sandbox_goes_on(forgetful):
    made, asked = forgetful
    (forgotten,) = inits_of(asked)
    again = made.start(asked)
    assert forgotten not in inits_of(asked)
    before = run(again, "cat", "now").stdout
    time.sleep(0.5)
    assert run(again, "cat", "now").stdout == before


def test_what_an_engine_forgot_is_ended_when_a_worker_finds_it_gone(forgetful):
    made, asked = forgetful
    assert isinstance(made.reattach(asked.owner, 2), SandboxMissing)
    assert inits_of(asked) == []


def test_what_an_engine_forgot_keeps_no_disk(forgetful):
    made, asked = forgetful
    made.destroy(asked.owner)
    assert inits_of(asked) == []
    assert made.sweep(()).volumes == ()


def test_while_the_engine_is_away_nothing_is_said_to_be_gone_and_what_waits_for_it_hears_a_cancel(
    own, sandboxes, sandbox_image
):
    sandbox = sandboxes.open(spec(sandboxes._instance, sandbox_image))
    own.stop()
    try:
        time.sleep(0.1)
        with pytest.raises(EngineUnavailable):
            sandbox.files.stat(".")
        waiting, until = ask(sandbox, "true"), time.monotonic() + 20
        while not is_withdrawn(sandbox):
            assert time.monotonic() < until
        waiting.join(20)
        assert isinstance(waiting.outcome, CallCancelled), waiting.outcome
    finally:
        own.start()


def is_withdrawn(sandbox):
    try:
        return sandbox.cancel("held", 1)
    except EngineUnavailable:
        return False  # it was not waited for yet
