"""Escape probes: each must fail inside a sandbox."""

from __future__ import annotations

import re

import pytest

from codesdk.sandbox.isolation.spec import TOOL_ENV
from sandboxes import python, run

pytestmark = pytest.mark.engine

# Each program exits 0 when the attempt is refused, and 1 when it succeeds.
PROBES = {
    "docker socket": "import os; raise SystemExit(any(os.path.exists(p) for p in ('/var/run/docker.sock', '/run/docker.sock', '/run/containerd')))",
    "write to proc sys": "open('/proc/sys/kernel/core_pattern', 'w')",
    "write to sysrq": "open('/proc/sysrq-trigger', 'w')",
    "read kernel memory": "open('/proc/kcore', 'rb').read(1) or refused()",
    "mount": "call('mount', b'none', b'/tmp', b'tmpfs', 0, 0)",
    "unshare a user namespace": "call('unshare', 0x10000000)",
    "unshare a mount namespace": "call('unshare', 0x00020000)",
    "setns": "call('setns', os.open('/proc/1/ns/net', os.O_RDONLY), 0)",
    "mknod": "os.mknod('/tmp/device', 0o600 | 0o060000, os.makedev(8, 0))",
    "chroot": "os.chroot('/tmp')",
    "become root": "os.setuid(0)",
    "become root by setuid file": "import subprocess; out = subprocess.run(['find', '/', '-xdev', '-perm', '/6000', '-type', 'f'], capture_output=True).stdout; raise SystemExit(1 if out else 0)",
    "set the clock": "import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
    "set the host name": "import socket; socket.sethostname('x')",
    "raw socket": "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packet socket": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "connect to the metadata address": "import socket; socket.create_connection(('169.254.169.254', 80), 1)",
    "connect to the internet": "import socket; socket.create_connection(('1.1.1.1', 53), 1)",
    "connect over ipv6": "import socket; socket.create_connection(('2606:4700:4700::1111', 53), 1)",
    "connect to the engine's gateway": "import socket; socket.create_connection(('172.17.0.1', 22), 1)",
    "resolve a name": "import socket; socket.getaddrinfo('example.com', 80)",
    "other interfaces": "import socket; raise SystemExit(0 if [n for _, n in socket.if_nameindex()] == ['lo'] else 1)",
    "write to the root": "open('/x', 'w')",
    "write to etc": "open('/etc/passwd', 'a')",
    "write to usr": "open('/usr/bin/x', 'w')",
    "write to a cgroup": "import glob; [open(p, 'w') for p in glob.glob('/sys/fs/cgroup/**/cgroup.procs', recursive=True) or refused()]",
    "release_agent": "import glob; [open(p, 'w') for p in glob.glob('/sys/fs/cgroup/**/release_agent', recursive=True) or refused()]",
    "add a key": "call_number(248, b'user', b'x', b'y', 1, -3)",
    "userfaultfd": "call_number(323, 0)",
    "bpf": "call_number(321, 0, 0, 0)",
    "perf_event_open": "call_number(298, 0, 0, -1, -1, 0)",
    "io_uring of the kernel's modules": "call_number(175, 0, 0, 0)",
    "kexec": "call_number(246, 0, 0, 0, 0)",
    "reboot": "call('reboot', 0)",
    "ptrace the runner": "call('ptrace', 16, 7, 0, 0)",
    "raise the own limit": "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))",
    "lower the nice value": "os.nice(-10)",
    "read root's files": "open('/etc/shadow').read()",
    "disk devices": "import os; raise SystemExit(1 if [d for d in os.listdir('/dev') if d.startswith(('sd', 'vd', 'nvme', 'loop', 'kmsg', 'mem'))] else 0)",
}

PRELUDE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(): raise PermissionError
def check(result):
    if result == -1: raise OSError(ctypes.get_errno(), "refused")
def call(name, *arguments): check(getattr(libc, name)(*arguments))
def call_number(number, *arguments): check(libc.syscall(number, *arguments))
try:
    {body}
except (OSError, ValueError) as error:
    print(type(error).__name__, error)
    raise SystemExit(0)
raise SystemExit(1)
"""


@pytest.mark.parametrize("probe", PROBES)
def test_a_tool_cannot(sandbox, probe):
    ran = python(sandbox, PRELUDE.format(body=PROBES[probe]))
    assert ran.result.exit_code == 0, (ran.stdout, ran.stderr)


def test_a_tool_sees_no_mounts_of_the_host(sandbox):
    lines = run(sandbox, "cat", "/proc/self/mountinfo").stdout.decode().splitlines()
    places = {line.split()[4] for line in lines}
    kinds = {
        line.split(" - ")[1].split()[0]
        for line in lines
        if line.split()[4].startswith(("/home", "/root", "/var", "/mnt"))
    }
    assert "/workspace" in places
    assert kinds == set()


def test_the_mount_table_names_the_engines_storage_and_no_other_path_of_the_host(sandboxes, sandbox):
    storage = sandboxes._engine.api.info()["DockerRootDir"]
    paths = set()
    for line in run(sandbox, "cat", "/proc/self/mountinfo").stdout.decode().splitlines():
        fields, (kind, _, options) = line.split(" - ")[0].split(), line.split(" - ")[1].split(" ", 2)
        if kind not in ("proc", "sysfs", "cgroup", "cgroup2", "tmpfs", "devpts", "mqueue"):
            if fields[3] != "/" and not fields[4].endswith("/docker-init"):
                paths.add(fields[3])
            paths.update(path for path in re.split("[:,=]", options) if path.startswith("/"))
    assert paths, "nothing was read"
    assert [path for path in paths if not path.startswith(storage)] == []


def test_the_only_writable_places_are_known(sandbox):
    program = """
import os
writable = sorted(m for m in {l.split()[4] for l in open("/proc/self/mountinfo")} if os.access(m, os.W_OK) and os.path.isdir(m))
print(writable)
"""
    assert python(sandbox, program).stdout.decode().strip() == "['/dev/mqueue', '/dev/shm', '/tmp', '/workspace']"


def test_the_environment_of_a_tool_holds_nothing_of_the_worker(sandbox, monkeypatch):
    names = run(sandbox, "env").stdout.decode()
    assert "CODESDK" not in names
    assert {line.partition("=")[0] for line in names.splitlines()} <= {
        *TOOL_ENV, "HOSTNAME", "PATH", "PWD", "SHLVL", "_",
    }  # fmt: skip


def test_nothing_listens_in_a_fresh_sandbox(sandbox):
    for table in ("tcp", "tcp6", "udp", "udp6"):
        assert len(run(sandbox, "cat", f"/proc/net/{table}").stdout.splitlines()) == 1, table
    # The runner's own socket pairs have no name; a name would be a door.
    named = [line for line in run(sandbox, "cat", "/proc/net/unix").stdout.splitlines()[1:] if len(line.split()) > 7]
    assert named == []
