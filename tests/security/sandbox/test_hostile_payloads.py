"""Programs that attack the sandbox's own processes. After each, the sandbox still answers."""

from __future__ import annotations

import threading
import time

import pytest

from codesdk.sandbox.port import ExitKind, FileError, FileRefused, FileWrite
from codesdk.sandbox.port.faults import SandboxGone
from sandboxes import DEADLINE_S, python, request, run

pytestmark = pytest.mark.engine

FORK_BOMB = """
import os
while True:
    try: os.fork()
    except OSError: pass
"""


def _still_works(sandbox) -> None:
    assert run(sandbox, "echo", "well").stdout == b"well\n"


def test_a_fork_bomb_is_stopped_by_its_timeout_and_leaves_nothing(open_sandbox):
    sandbox = open_sandbox()
    started = time.monotonic()
    ran = python(sandbox, FORK_BOMB, timeout_s=1.0)
    assert ran.result.kind is ExitKind.TIMED_OUT
    assert time.monotonic() - started < 60
    _still_works(sandbox)
    count = python(sandbox, "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))")
    assert int(count.stdout) < 20


def test_a_fork_bomb_is_cancelled_while_a_neighbour_lives_on(open_sandbox):
    sandbox = open_sandbox()
    neighbour = request("python3", "-c", "import time; print('up', flush=True); time.sleep(4); print('whole')")
    bomb = request("python3", "-c", "print('lit', flush=True)" + FORK_BOMB)
    up, lit, output, results = threading.Event(), threading.Event(), bytearray(), {}

    def hear(chunk) -> None:
        output.extend(chunk.data)
        up.set()

    threads = [
        threading.Thread(target=lambda: results.update(neighbour=sandbox.exec(neighbour, hear))),
        threading.Thread(target=lambda: results.update(bomb=sandbox.exec(bomb, lambda _: lit.set()))),
    ]
    threads[0].start()
    assert up.wait(DEADLINE_S)
    threads[1].start()
    assert lit.wait(DEADLINE_S)
    time.sleep(0.5)
    started = time.monotonic()
    assert sandbox.cancel(bomb.call, bomb.attempt)
    took = time.monotonic() - started
    for thread in threads:
        thread.join(DEADLINE_S)
    assert results["bomb"].kind is ExitKind.CANCELLED
    assert (results["neighbour"].exit_code, bytes(output)) == (0, b"up\nwhole\n")
    assert took < 6
    _still_works(sandbox)


def test_a_shell_fork_bomb_that_ignores_term_is_ended(open_sandbox):
    sandbox = open_sandbox()
    ran = run(sandbox, "sh", "-c", "trap '' TERM; f() { f | f & f; }; f", timeout_s=0.5)
    assert ran.result.kind in (ExitKind.TIMED_OUT, ExitKind.EXITED)
    _still_works(sandbox)


@pytest.mark.parametrize("number", ["STOP", "KILL", "TERM", "HUP", "USR1"])
def test_a_signal_to_every_process_reaches_none_of_ours(sandbox, number):
    ran = python(
        sandbox, f"import os, signal; signal.signal(signal.SIGTERM, lambda *_: None); os.kill(-1, signal.SIG{number})"
    )
    assert ran.result.kind in (ExitKind.EXITED, ExitKind.SIGNALED)
    _still_works(sandbox)


def test_no_process_of_ours_can_be_signalled_traced_read_or_limited(sandbox):
    program = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
mine = os.getuid()
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and os.stat("/proc/" + p).st_uid != mine]
allowed = []
def attempt(word, action):
    try:
        if action() in (-1,): return
    except OSError: return
    allowed.append(word)
for pid in others:
    for task in os.listdir(f"/proc/{pid}/task"):
        attempt(f"kill {pid}", lambda: os.kill(int(task), 0))
        attempt(f"ptrace {pid}", lambda: libc.ptrace(16, int(task), 0, 0))
        attempt(f"mem {pid}", lambda: os.open(f"/proc/{pid}/task/{task}/mem", os.O_RDONLY))
        attempt(f"environ {pid}", lambda: os.open(f"/proc/{pid}/task/{task}/environ", os.O_RDONLY))
        attempt(f"fds {pid}", lambda: os.listdir(f"/proc/{pid}/task/{task}/fd"))
        attempt(f"cwd {pid}", lambda: os.readlink(f"/proc/{pid}/task/{task}/cwd"))
        attempt(f"prlimit {pid}", lambda: resource.prlimit(int(task), resource.RLIMIT_NOFILE, (0, 0)))
        attempt(f"oom {pid}", lambda: os.open(f"/proc/{pid}/task/{task}/oom_score_adj", os.O_WRONLY))
print(len(others), allowed)
"""
    ran = python(sandbox, program)
    count, _, allowed = ran.stdout.decode().strip().partition(" ")
    assert int(count) >= 3  # init, the runner, the fork server, this exec's subreaper
    assert allowed == "[]", ran.stderr


def test_a_flood_of_output_is_bounded_and_the_exec_can_be_ended(open_sandbox):
    sandbox = open_sandbox(memory_bytes=128 * 1024 * 1024)
    ran = run(sandbox, "sh", "-c", "cat /dev/zero & cat /dev/zero >&2", timeout_s=1.5)
    assert ran.result.kind is ExitKind.TIMED_OUT
    assert ran.result.stdout.dropped > 0
    assert len(ran.stdout) + len(ran.stderr) <= 32 * 1024 * 1024
    assert ran.result.oom_kills == 0
    sandbox.acknowledge(ran.call, 1)
    _still_works(sandbox)


def test_a_storm_of_single_bytes_on_both_streams_does_not_exhaust_the_runner(open_sandbox):
    sandbox = open_sandbox(memory_bytes=96 * 1024 * 1024)
    program = "import os\nfor n in range(60000):\n    os.write(1, b'o'); os.write(2, b'e')"
    ran = python(sandbox, program)
    assert (ran.stdout, ran.stderr) == (b"o" * 60000, b"e" * 60000)
    _still_works(sandbox)


def test_many_small_processes_that_offer_themselves_less_to_the_oom_killer_end_as_a_known_end(open_sandbox):
    """A tool can lower its own oom score: then the kernel may take the runner, and the sandbox ends. Never a lie."""
    sandbox = open_sandbox(memory_bytes=96 * 1024 * 1024)
    program = """
import os, time
open("/proc/self/oom_score_adj", "w").write("0")
for n in range(60):
    if os.fork() == 0:
        held = bytearray(3 << 20); time.sleep(20)
time.sleep(5)
"""
    ends = (ExitKind.OOM_KILLED, ExitKind.TIMED_OUT, ExitKind.EXITED)
    try:
        known = python(sandbox, program, timeout_s=4.0).result.kind in ends
    except SandboxGone:
        known = True
    assert known


def test_a_storm_of_zombies_is_reaped(sandbox):
    program = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
time.sleep(0.2)
"""
    assert python(sandbox, program).result.kind is ExitKind.EXITED
    _still_works(sandbox)
    zombies = python(
        sandbox,
        "import os\nprint(sum(b' Z ' in open(f'/proc/{p}/stat','rb').read() for p in os.listdir('/proc') if p.isdigit()))",
    )
    assert zombies.stdout == b"0\n"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /bin/* /usr/* /lib/* 2>/dev/null",
        "chmod -R 000 / 2>/dev/null",
        "chmod 000 /workspace",
        "kill -9 1",
        "exec 0<&- 1>&- 2>&-; sleep 0.2",
        "ulimit -n 4; true",
        "mkfifo fifo && (cat fifo & sleep 0.1)",
        "ln -s loop loop; ls loop/x",
        "head -c 10 /dev/urandom; printf '\\377\\376\\0'; printf '\\303' >&2",
        "cd /tmp && for i in $(seq 1 400); do mkdir d && cd d; done",
        "truncate -s 1024T sparse",
        "dd if=/dev/zero of=/dev/shm/fill bs=1M",
        "dd if=/dev/zero of=/tmp/fill bs=1M; rm -f /tmp/fill",
        "rm -rf /workspace/* /workspace/.[a-z]*",
    ],
)
def test_vandalism_hurts_only_the_vandal(sandbox, line):
    assert run(sandbox, "sh", "-c", line).result.kind in (ExitKind.EXITED, ExitKind.SIGNALED)
    run(sandbox, "sh", "-c", "chmod 755 /workspace; rm -f /dev/shm/fill; rm -rf /tmp/d")
    _still_works(sandbox)
    assert sandbox.files.list(".").entries is not None


def test_limits_of_a_tool_are_those_asked(open_sandbox):
    sandbox = open_sandbox(pids=120, open_files=300, file_bytes=2 << 20)
    program = """
import resource
for name in ("NPROC", "NOFILE", "FSIZE", "CORE", "MSGQUEUE", "MEMLOCK"):
    print(name, *resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
"""
    lines = python(sandbox, program).stdout.decode().splitlines()
    assert lines == [
        "NPROC 65 65", "NOFILE 300 300", "FSIZE 2097152 2097152", "CORE 0 0", "MSGQUEUE 65536 65536", "MEMLOCK 65536 65536",
    ]  # fmt: skip
    ran = run(sandbox, "sh", "-c", "head -c 5000000 /dev/zero > big")
    assert ran.result.exit_code != 0
    assert sandbox.files.stat("big").size <= 2 << 20


def test_a_capped_workspace_says_when_it_is_full(open_sandbox):
    sandbox = open_sandbox(workspace_bytes=4 << 20)
    run(sandbox, "sh", "-c", "head -c 10000000 /dev/zero > fill")
    refused = sandbox.files.write((FileWrite(path="more", content=bytes(100_000)),))
    assert isinstance(refused, FileRefused)
    assert refused.error is FileError.NO_SPACE
    _still_works(sandbox)
    run(sandbox, "rm", "fill")
    assert not isinstance(sandbox.files.write((FileWrite(path="more", content=b"x"),)), FileRefused)


def test_a_tool_inherits_three_descriptors_and_no_more(sandbox):
    ran = python(sandbox, "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert ran.stdout == b"[0, 1, 2]\n"


def test_an_exec_cannot_read_the_environment_of_a_finished_one(sandbox):
    """Secrets are an exec's own: what it left running is ended with it, so no leftover still shows them."""
    run(sandbox, "sh", "-c", "setsid sleep 30 & true", env={"SECRET": "planted"})
    program = """
import os
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        try: data = open(f"/proc/{pid}/environ", "rb").read()
        except OSError: continue
        if b"planted" in data: raise SystemExit(1)
"""
    assert python(sandbox, program).result.exit_code == 0
