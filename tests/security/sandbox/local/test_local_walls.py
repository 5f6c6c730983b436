"""The isolation of bubblewrap and of the separate user, and what the attestation reports if they are missing."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from codesdk.sandbox.local.bwrap import SYSTEM_DIRECTORIES, python_homes
from codesdk.sandbox.local.cgroups import Controller
from codesdk.sandbox.local.driver import _read_processes
from codesdk.sandbox.local.shim_stream import ShimStream
from codesdk.sandbox.port import ExitKind
from sandboxes import python, run

WALLED = {
    "read_the_hosts_files": "open('/etc/shadow')",
    "see_the_data_directory": "__import__('os').listdir('{root}')",
    "write_the_system": "open('/usr/codesdk-probe', 'w')",
    "write_the_root": "open('/codesdk-probe', 'w')",
    "reach_the_network": "__import__('socket').create_connection(('192.0.2.1', 443), timeout=2)",
    "reach_a_service_of_the_host": "__import__('socket').create_connection(('127.0.0.1', {port}), timeout=2)",
    "signal_a_process_of_the_host": "__import__('os').kill({pid}, 0)",
    "reach_the_engine": "s=__import__('socket').socket(1); s.connect('/var/run/docker.sock')",
}
CALLS = {
    "unshare": (272, "0x10000000"), "mount": (165, "0"), "keyctl": (250, "0"), "bpf": (321, "0"),
    "userfaultfd": (323, "0"), "perf_event_open": (298, "0"), "io_uring_setup": (425, "1"), "setns": (308, "0"),
    "clone_new_user": (56, "0x10000011"), "process_vm_readv": (310, "1"),
}  # fmt: skip


@pytest.fixture
def walled(sandboxes):
    if sandboxes.confinement.network:
        pytest.skip("exempt on plain: there is no wall, and the attestation says so")


@pytest.fixture
def apart(sandboxes):
    if not sandboxes.confinement.apart:
        pytest.skip("exempt for an ordinary user: tools run as the runner's own user, and the attestation says so")


def test_the_mount_table_names_the_workspace_and_the_system_and_no_other_path(walled, sandboxes, opened):
    place = sandboxes._directories._root / opened.owner
    known = (*SYSTEM_DIRECTORIES, "/etc", *python_homes(), *(f"{place}/{name}" for name in ("workspace", "etc")))
    paths = set()
    for line in run(opened, "cat", "/proc/self/mountinfo").stdout.decode().splitlines():
        fields, kind = line.split(" - ")[0].split(), line.split(" - ")[1].split()[0]
        if kind not in ("proc", "tmpfs", "devtmpfs", "devpts", "cgroup", "cgroup2"):
            paths.add(fields[3])
    assert f"{place}/workspace" in paths
    assert [path for path in paths if not path.startswith(known)] == []


@pytest.mark.parametrize("what", WALLED)
def test_a_tool_cannot(walled, sandboxes, opened, what):
    with socket.create_server(("127.0.0.1", 0)) as service:
        program = WALLED[what].format(root=sandboxes._directories._root, port=service.getsockname()[1], pid=os.getpid())
        assert python(opened, program).result.exit_code == 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are this architecture's")
@pytest.mark.parametrize("name", CALLS)
def test_a_dangerous_system_call_is_refused(opened, name):
    number, first = CALLS[name]
    program = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall({number}, {first}, 0, 0, 0, 0, 0)
assert result == -1 and ctypes.get_errno() == errno.EPERM, (result, ctypes.get_errno())
"""
    ran = python(opened, program)
    assert ran.result.exit_code == 0, ran.stderr


def test_a_tool_cannot_harm_its_runner_or_porter(apart, sandboxes, opened):
    members = _read_processes(sandboxes._directories.of(opened.owner))
    # Behind the wall they have other numbers: whatever is seen there is tried.
    ours = [] if members.inner else [members.shim.pid, members.runner.pid]
    program = f"""
import os, json
found = []
own = {{os.getpid()}}
pids = {ours} or [int(name) for name in os.listdir("/proc") if name.isdigit()]
for pid in pids:
    if pid in own:
        continue
    for attempt in (lambda: os.kill(pid, 9), lambda: open(f"/proc/{{pid}}/mem"), lambda: open(f"/proc/{{pid}}/environ").read()):
        try:
            attempt()
        except OSError:
            continue
        found.append(pid)
print(json.dumps(found))
"""
    assert json.loads(python(opened, program).stdout) == []
    assert run(opened, "true").result.exit_code == 0
    assert members.shim is not None


def test_a_fork_bomb_is_ended_by_its_timeout_and_a_neighbour_lives_on(apart, opened):
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    ran = python(opened, bomb, timeout_s=1.0)
    assert ran.result.kind is ExitKind.TIMED_OUT
    assert run(opened, "true").result.exit_code == 0


def test_a_process_that_takes_more_memory_than_the_profile_allows_is_refused_it(sandboxes, make_spec):
    made = sandboxes.open(make_spec(memory_bytes=64 * 1024 * 1024))
    ran = python(made, "bytearray(100 * 1024 * 1024)")
    if Controller.MEMORY in sandboxes.confinement.groups.parents:
        assert ran.result.kind is ExitKind.OOM_KILLED
    else:
        assert (ran.result.exit_code, b"MemoryError" in ran.stderr) == (1, True)
    assert run(made, "true").result.exit_code == 0
    sandboxes.destroy(made.owner)


@pytest.fixture
def capped(sandboxes):
    if not sandboxes.confinement.groups.whole:
        pytest.skip("exempt where no cgroup may be made, and the attestation says so")


TOGETHER = """
import os, sys, time
# Each takes half of what the sandbox has, and leaves its tree.
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        held = bytearray(int(sys.argv[1]) // 2)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""


def test_many_processes_together_take_no_more_memory_than_the_profile_allows(capped, sandboxes, make_spec):
    most = 96 * 1024 * 1024
    made = sandboxes.open(make_spec(memory_bytes=most))
    ran = run(made, "python3", "-c", TOGETHER, str(most), timeout_s=3.0)
    assert ran.result.oom_kills >= 1
    assert run(made, "true").result.exit_code == 0
    sandboxes.destroy(made.owner)


def test_many_processes_together_take_no_more_time_of_the_processors(capped, sandboxes, make_spec):
    made = sandboxes.open(make_spec(cpus=0.25))
    burn = "import os\nfor _ in range(2): os.fork()\nwhile True: pass"
    ran = python(made, burn, timeout_s=2.0)
    assert ran.result.kind is ExitKind.TIMED_OUT
    assert ran.result.cpu_s < 0.25 * ran.result.duration_s + 0.3
    sandboxes.destroy(made.owner)


def test_a_process_count_that_no_user_limit_sees_is_capped_too(capped, sandboxes, make_spec):
    made = sandboxes.open(make_spec(pids=80))
    stated = sandboxes._directories.of(made.owner).group()
    assert stated.limits()[Controller.PIDS] == "80"
    bomb = "import os\nn = 0\nwhile True:\n  try:\n    if os.fork() == 0: __import__('time').sleep(20)\n    n += 1\n  except OSError: break\nprint(n)"
    assert int(python(made, bomb).stdout) < 80
    sandboxes.destroy(made.owner)


def test_the_porters_socket_and_directory_are_closed_to_others(sandboxes, opened):
    place = sandboxes._directories.of(opened.owner)
    assert (place.directory.stat().st_mode & 0o777) == 0o700
    assert ((place.directory / "link").stat().st_mode & 0o077) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can speak as another user")
def test_another_user_who_gets_to_the_socket_is_not_served(sandboxes, opened):
    place = sandboxes._directories.of(opened.owner)
    (place.directory / "link").chmod(0o777)
    place.directory.chmod(0o777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(place.directory)
            os.setresuid(54_321, 54_321, 54_321)
            stranger = socket.socket(socket.AF_UNIX)
            stranger.settimeout(10)
            stranger.connect("link")
            code = 0 if stranger.recv(1) == b"" else 2
        except ConnectionError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    place.directory.chmod(0o700)


def test_a_socket_of_another_user_is_not_spoken_to(tmp_path, monkeypatch):
    here = Path("/proc/self/fd") / str(os.open(tmp_path, os.O_RDONLY))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(here / "link"))
    listener.listen()
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    with pytest.raises(PermissionError):
        ShimStream(tmp_path, lambda: "")
    listener.close()
    os.close(int(here.name))
