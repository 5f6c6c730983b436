"""The tests' own dockerd, separate from the machine's: other socket, data, pid file, and network namespace.

The last matters: a dockerd with `--bridge=none` removes the docker0 bridge that the machine's engine uses.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from codesdk.provision.engines import docker_engine, dockerd
from codesdk.provision.engines.docker_engine import ManagedEngine
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.provision.images.base_image import DockerCommand
from codesdk.provision.servers.shared_server import SharedServer
from codesdk.provision.system.command import ProvisionFailed, root, which
from codesdk.provision.system.process_identity import mark, name, pid_in

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(which("dockerd") is None, reason="the engine here is not a local dockerd"),
    pytest.mark.skipif(root() is None, reason="a second dockerd needs root"),
    pytest.mark.skipif(dockerd.systemd_runs(), reason="with systemd the engine is a unit"),
]


@pytest.fixture
def desk(tmp_path):
    places = DockerdPaths(
        pid_file=tmp_path / "dockerd.pid",
        log=tmp_path / "dockerd.log",
        socket=tmp_path / "docker.sock",
        exec_root=tmp_path / "exec",
        data_root=tmp_path / "data",
        flags=("--bridge=none", "--iptables=false", "--ip6tables=false"),
        launcher=("unshare", "--net"),
    )
    yield ManagedEngine(SharedServer(tmp_path, "engine"), places)
    pids = (places.pid_file, places.exec_root / "containerd" / "containerd.pid")
    for pid in [pid_in(file.read_text()) for file in pids if file.exists()]:
        left = mark(pid) if pid is not None and name(pid) in {"dockerd", "containerd"} else None
        if left is not None:
            left.terminate(20)
    for place in (places.data_root, places.exec_root):  # dockerd mounts its data directory; a killed one leaves that
        subprocess.run(["umount", "--quiet", "--recursive", str(place)], check=False, capture_output=True)


def quiet(line):
    pass


def ensure(desk, say=quiet):
    return docker_engine.ensure(say, managed=desk, environ={})


def test_an_engine_is_started_told_about_and_stopped(desk):
    said = []
    started = ensure(desk, said.append)
    assert started.started_by_us
    assert "dockerd" in said[0]
    assert DockerCommand(started)("info").ok
    assert started.stop()
    assert ping(started.host).answer is EndpointState.NOTHING
    assert not started.stop()


def test_an_engine_of_another_program_is_not_stopped(desk):
    first = ensure(desk)
    (desk.shares.directory / "engine.json").unlink()  # as if another program had started it
    again = ensure(desk, pytest.fail)
    assert not again.started_by_us
    assert not again.stop()
    assert not first.stop()
    assert ping(again.host).answer is EndpointState.ENGINE


def test_the_engine_of_a_killed_run_is_taken_over_and_stopped(desk, tmp_path):
    script = f"""
import os, pathlib, signal
from codesdk.provision.engines import docker_engine as engine
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.engines.docker_engine import ManagedEngine
from codesdk.provision.servers.shared_server import SharedServer
p = pathlib.Path({str(tmp_path)!r})
places = DockerdPaths(p / "dockerd.log", p / "docker.sock", p / "dockerd.pid", p / "exec", p / "data",
                      {desk.places.flags!r}, {desk.places.launcher!r})
e = engine.ensure(print, managed=ManagedEngine(SharedServer(p, "engine"), places), environ={{}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    again = ensure(desk, pytest.fail)
    assert again.started_by_us
    assert again.stop()


def test_an_engine_starts_over_what_a_killed_one_left(desk):
    first = ensure(desk)
    dying = mark(pid_in(desk.places.pid_file.read_text()))
    os.kill(dying.pid, signal.SIGKILL)
    assert dying.wait(10)
    assert desk.places.socket.exists()
    second = ensure(desk)
    assert second.started_by_us
    first.stop()
    assert ping(second.host).answer is EndpointState.ENGINE
    assert second.stop()


def test_pid_files_whose_pids_now_belong_to_others_are_no_obstacle(desk):
    containerd = desk.places.exec_root / "containerd" / "containerd.pid"
    containerd.parent.mkdir(parents=True)
    for file in (desk.places.pid_file, containerd):
        file.write_text(str(os.getpid()))
    assert ensure(desk).stop()


def test_a_dockerd_that_ends_is_quoted_at_once(desk):
    broken = ManagedEngine(desk.shares, dataclasses.replace(desk.places, flags=("--no-such-flag",)))
    with pytest.raises(ProvisionFailed, match="no-such-flag"):
        ensure(broken)


def test_a_second_dockerd_on_the_same_data_is_refused_and_the_first_lives(desk, monkeypatch):
    monkeypatch.setattr(dockerd, "LEFTOVER_S", 0.2)
    first = ensure(desk)
    silent = dataclasses.replace(desk.places, socket=desk.places.socket.with_name("second.sock"))
    other = ManagedEngine(SharedServer(desk.shares.directory, "second"), silent)
    with pytest.raises(ProvisionFailed, match="pid file found"):
        ensure(other)
    assert ping(first.host).answer is EndpointState.ENGINE
    assert first.stop()
