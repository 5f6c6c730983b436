from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import leftovers
import shims
from codesdk.provision.system.command import root
from codesdk.provision.system.process_identity import mark, name
from small_disk import small_disk
from stage import wait_for

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "temp" / "pytest-of-nobody"


@pytest.fixture
def data(runs: Path):
    """What an engine of a run that was killed leaves: its data directory, mounted, in the oldest run's directory."""
    place = runs / "pytest-0" / "own0" / "data"
    place.parent.mkdir(parents=True)
    with small_disk(place, "1m"):
        yield place


def test_what_a_killed_run_left_mounted_is_unmounted(runs: Path, data: Path) -> None:
    assert leftovers.unmount(runs) == [data]
    assert not data.is_mount()


def test_an_engine_that_a_killed_run_left_is_ended(runs: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "dockerd").symlink_to("/bin/sleep")
    engine = subprocess.Popen([tmp_path / "dockerd", "600"])
    (data.parent / "dockerd.pid").write_text(str(engine.pid))
    try:
        wait_for(lambda: name(engine.pid) == "dockerd", "its name, which the kernel sets a moment after its start")
        leftovers.unmount(runs)
        assert engine.wait(20) == -signal.SIGTERM
    finally:
        engine.kill()
        engine.wait()


def test_another_program_that_has_the_pid_of_an_engine_goes_on(runs: Path, data: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (data.parent / "dockerd.pid").write_text(str(stranger.pid))
        leftovers.unmount(runs)
        assert mark(stranger.pid) is not None
    finally:
        stranger.kill()
        stranger.wait()


def test_what_a_run_that_goes_on_has_mounted_stays(runs: Path, data: Path) -> None:
    (runs / "pytest-0" / ".lock").write_text(str(os.getpid()))
    assert leftovers.unmount(runs) == []
    assert data.is_mount()


@pytest.mark.skipif(
    root() is None or os.geteuid() != 0, reason="pytest keeps a directory per user; mounting needs root"
)
def test_a_directory_that_pytest_cannot_remove_fails_no_run(tmp_path: Path) -> None:
    runs = tmp_path / "temp" / "pytest-of-root"
    for number in range(5):
        (runs / f"pytest-{number}" / "own0").mkdir(parents=True)
    (tmp_path / "test_one.py").write_text("def test_one(tmp_path): pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", str(PROJECT / "pyproject.toml"), str(tmp_path / "test_one.py")]
    with small_disk(runs / "pytest-0" / "own0" / "data", "1m"):
        run = subprocess.run(
            command,
            env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(tmp_path / "temp")},
            capture_output=True,
            text=True,
            check=False,
        )
        left = list(runs.glob("garbage-*/own0/data"))
        assert left, "pytest has tried to remove it"
        assert run.returncode == 0, run.stdout + run.stderr
        subprocess.run(["umount", str(left[0])], check=True)


def test_a_shim_that_nobody_ends_is_ended_with_what_it_looks_after(runs: Path, data: Path, tmp_path: Path) -> None:
    address = data.parent / "exec" / "containerd" / "containerd.sock"
    (tmp_path / "containerd-shim-runc-v2").symlink_to(sys.executable)
    program = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); input()"
    argv = [tmp_path / "containerd-shim-runc-v2", "-c", program, "-id", "one", "-address", str(address)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shim:
        child = int(shim.stdout.readline())
        (found,) = shims.of_engine(data.parent / "exec")
        assert (found.pid, found.container, found.processes()) == (shim.pid, "one", [child])
        assert found.is_of(())
        leftovers.unmount(runs)
        assert shim.wait(20) != 0
    assert mark(child) is None
    assert shims.of_engine(data.parent / "exec") == []
