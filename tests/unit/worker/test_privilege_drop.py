"""Dropping privileges, in a child: a process that gave up root can't continue testing."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys

import pytest

from codesdk.worker.lifecycle import privilege_drop

UID, GID, GROUP = 61_001, 61_002, 61_003
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@as_root
def test_after_the_descent_there_is_neither_root_nor_a_capability_nor_a_way_back():
    script = f"""
import json, os
from codesdk.worker.lifecycle import privilege_drop
privilege_drop.make_loop_devices = lambda devices: None
privilege_drop.drop_privileges({UID}, {GID}, [{GROUP}])
try:
    os.setuid(0)
    back = True
except PermissionError:
    back = False
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), int(status["CapEff"], 16), back]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[UID] * 3, [GID] * 3, [GROUP], 0, False]


@as_root
def test_loop_devices_are_lent_to_the_group_and_to_nobody_else(tmp_path):
    privilege_drop.make_loop_devices(tmp_path)
    control, last = (tmp_path / "loop-control").stat(), (tmp_path / f"loop{privilege_drop.LOOP_DEVICES - 1}").stat()
    assert (stat.S_ISCHR(control.st_mode), os.major(control.st_rdev), os.minor(control.st_rdev)) == (True, 10, 237)
    assert (stat.S_ISBLK(last.st_mode), os.major(last.st_rdev), os.minor(last.st_rdev)) == (
        True,
        7,
        privilege_drop.LOOP_DEVICES - 1,
    )
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o660}
    assert {path.stat().st_gid for path in tmp_path.iterdir()} == {os.getegid()}


@as_root
def test_nodes_that_are_there_stay_as_they_are(tmp_path):
    (tmp_path / "loop0").write_text("somebody's")
    privilege_drop.make_loop_devices(tmp_path)
    assert (tmp_path / "loop0").read_text() == "somebody's"


def test_the_group_is_that_of_the_engines_socket(tmp_path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert privilege_drop.engine_groups(f"unix://{path}") == [path.stat().st_gid]


@pytest.mark.parametrize("host", ["", "tcp://10.0.0.1:2376", "unix:///nowhere/docker.sock"])
def test_where_there_is_no_socket_no_group_is_joined(host):
    assert privilege_drop.engine_groups(host) == []
