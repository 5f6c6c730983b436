"""Which processes count as those of a lost container, and that no others do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from codesdk.sandbox.docker.lost_containers import kill_lost_container

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


@contextmanager
def process(*settings, launcher=()):
    """One that says "up" and stays, with these as its last arguments."""
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [*launcher, sys.executable, "-c", program, *settings]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout.readline() == "up\n"
        yield begun
        begun.stdin.close()


@pytest.fixture
def name():
    return f"codesdk-1234abcd-sbx_{uuid.uuid4().hex}"


def test_a_process_beside_the_worker_is_never_one(name):
    with process(json.dumps({"sandbox": name})) as beside:
        assert kill_lost_container(name) == 0
        beside.stdin.close()
        assert beside.wait(20) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a process namespace of its own needs root")
@pytest.mark.parametrize(
    "said",
    ["", "{", "[]", "no json", '{"other": "NAME"}', '{"sandbox": "NAME-2"}', '"NAME"', "[" * 2000, "[" * 2000 + "NAME"],
    ids=lambda said: said[:20],
)
def test_the_first_process_of_a_namespace_that_names_no_such_sandbox_is_none(name, said):
    with process(said.replace("NAME", name), launcher=UNSHARE) as other:
        assert kill_lost_container(name) == 0
        other.stdin.close()
        assert other.wait(20) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a process namespace of its own needs root")
def test_one_that_names_it_is_ended_with_all_of_its_namespace_but_not_for_another_container(name):
    program = "import subprocess, sys; print('up', flush=True); subprocess.run(['cat'])"
    command = [*UNSHARE, sys.executable, "-c", program, json.dumps({"sandbox": name})]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout.readline() == "up\n"
        assert kill_lost_container(name, container="of another container") == 0
        assert begun.poll() is None
        assert kill_lost_container(name) == 1
        assert begun.stdout.read() == ""  # nobody holds it any more
        assert begun.wait(20) != 0
        assert kill_lost_container(name) == 0


@pytest.fixture
def created(tmp_path, name):
    """By a real runc: containers that were created and not started, with this directory mounted; their process."""
    made = []

    def create(source, *options):
        bundle = tmp_path / f"bundle-{len(made)}"
        (bundle / "rootfs").mkdir(parents=True)
        (bundle / "rootfs" / "program").touch(mode=0o755)  # which is never run
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        config = json.loads((bundle / "config.json").read_text())
        config["process"] |= {"terminal": False, "args": ["/program"]}
        config["root"]["readonly"] = False
        volume = {"destination": "/workspace", "type": "bind", "source": str(source), "options": ["bind", *options]}
        config["mounts"].append(volume)
        (bundle / "config.json").write_text(json.dumps(config))
        container = f"codesdk-test-{uuid.uuid4().hex}"
        made.append(container)
        runc = ["runc", "--root", str(tmp_path / "state")]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*runc, "create", "--bundle", str(bundle), container], check=True, **quiet)
        said = subprocess.run([*runc, "state", container], check=True, capture_output=True)
        return json.loads(said.stdout)["pid"]

    yield create
    for container in made:
        subprocess.run(["runc", "--root", str(tmp_path / "state"), "delete", "--force", container], check=False)


def lives(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.skipif(os.getuid() != 0, reason="runc makes such containers as root")
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed, or not here")
def test_a_container_that_was_made_and_never_started_is_one_where_it_has_the_workspace_to_write(
    created, name, tmp_path
):
    volume = tmp_path / "volumes" / name / "_data"
    other = tmp_path / "volumes" / f"{name}-2" / "_data"
    for place in (volume, other):
        place.mkdir(parents=True)
    own, borrower, stranger = created(volume), created(volume, "ro"), created(other)
    assert kill_lost_container(name, container="of another container") == 0
    assert kill_lost_container(name) == 1
    assert (lives(own), lives(borrower), lives(stranger)) == (False, True, True)
    assert kill_lost_container(f"{name}-3", device=lambda: "/dev/loop-of-nobody") == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a process namespace of its own needs root")
def test_one_that_may_not_be_ended_stops_nothing(name, monkeypatch):
    def refuse(_descriptor, _signal):
        raise PermissionError("not permitted")

    with process(json.dumps({"sandbox": name}), launcher=UNSHARE) as other:
        monkeypatch.setattr("signal.pidfd_send_signal", refuse)
        assert kill_lost_container(name) == 0
        monkeypatch.undo()
        other.stdin.close()
        assert other.wait(20) == 0
