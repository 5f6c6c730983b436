"""Hostile probes that exhaust processes, memory, output, descriptors and disk."""

from __future__ import annotations

from codesdk.sandbox.port import ExitKind, FileError, FileWrite
from codesdk.sandbox.selfcheck.behaviour_files import expect_refused, write_files
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import expect, expect_end, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe, prints

MIB = 1 << 20
FEW_PROCESSES = 20
"""Maximum processes of an idle sandbox: init, runner, fork server, idle subreapers, and the counting program."""
BOUND_S = 15.0
"""A fork bomb with a timeout of 1 s ends within 3 s."""
_COUNT = "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))"


def _expect_no_processes(context: ProbeContext, sandbox: object) -> None:
    count = int(expect_exit(context.python(_COUNT, sandbox)).stdout)  # type: ignore[arg-type]
    expect(1 < count < FEW_PROCESSES, f"{count} processes are left")


def _fork_bomb(context: ProbeContext) -> None:
    program = """
import os
print("lit", flush=True); printed = False
while True:
    try: os.fork()
    except OSError as error:
        if not printed: os.write(1, b"EAGAIN\\n" if error.errno == 11 else b"other\\n"); printed = True
"""
    with context.own() as sandbox:
        ran = expect_end(context.python(program, sandbox, timeout_s=1.0), ExitKind.TIMED_OUT)
        expect(b"EAGAIN" in ran.stdout, f"no fork was refused: {ran.stdout[:100]!r}")
        expect(ran.took_s < BOUND_S, f"it ended after {ran.took_s:.1f} s")
        _expect_no_processes(context, sandbox)


def _shell_fork_bomb(context: ProbeContext) -> None:
    with context.own() as sandbox:
        ran = context.sh("trap '' TERM; echo lit; f() { f | f & f; }; f", sandbox, timeout_s=0.7)
        expect_end(ran, ExitKind.TIMED_OUT, ExitKind.EXITED, ExitKind.SIGNALED)
        expect_equal("first output", ran.stdout[:3], b"lit")
        _expect_no_processes(context, sandbox)


def _threads(context: ProbeContext) -> None:
    program = """
import threading, time
count = 0
try:
    while count < 3000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); count += 1
except RuntimeError:
    print("refused", flush=True)
print(count, flush=True)
import os; os._exit(0)
"""
    with context.own() as sandbox:
        ran = expect_exit(context.python(program, sandbox))
        expect(ran.stdout.startswith(b"refused"), f"all threads were started: {ran.stdout!r}")
        _expect_no_processes(context, sandbox)


def _zombies(context: ProbeContext) -> None:
    program = """
import os, time
for _ in range(90):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
time.sleep(0.2); print("made")
"""
    count = "import os\nprint(sum(open(f'/proc/{p}/stat','rb').read().rpartition(b')')[2].split()[0] == b'Z' for p in os.listdir('/proc') if p.isdigit()))"
    expect_equal("stdout", expect_exit(context.python(program)).stdout, b"made\n")
    expect_equal("zombies afterwards", expect_exit(context.python(count)).stdout, b"0\n")


def _daemons(context: ProbeContext) -> None:
    marker = context.marker()
    line = f"for n in $(seq 40); do (setsid sh -c 'sleep {marker} &' &); done; sleep 0.3; ps -e -o args= | grep -c '[s]leep {marker}'"
    seen = int(expect_exit(context.sh(line)).stdout or b"0")
    expect(seen >= 40, f"{seen} daemons were seen to live, not 40")  # noqa: PLR2004 - as many as were started
    expect(not context.is_running(marker), "daemons outlived their exec")


def _children_memory(context: ProbeContext) -> None:
    program = """
import os, time
print("begun", flush=True)
for _ in range(40):
    if os.fork() == 0:
        held = bytearray(b"x" * (8 << 20)); time.sleep(20); os._exit(0)
while True: os.wait()
"""
    with context.own(memory_bytes=96 * MIB) as sandbox:
        ran = context.python(program, sandbox, timeout_s=4.0)
        expect_end(ran, ExitKind.OOM_KILLED, ExitKind.TIMED_OUT, ExitKind.EXITED)
        expect(ran.result.oom_kills > 0, "320 MB fitted into 96 MB")


def _mapped_memory(context: ProbeContext) -> None:
    program = "import mmap\nm = mmap.mmap(-1, 400 << 20)\nfor p in range(0, 400 << 20, 4096): m[p] = 1\nprint('all')"
    with context.own(memory_bytes=96 * MIB) as sandbox:
        expect_end(context.python(program, sandbox), ExitKind.OOM_KILLED)


def _address_space(context: ProbeContext) -> None:
    program = (
        "import mmap\ntry: mmap.mmap(-1, 1 << 46); print('mapped')\nexcept (OSError, ValueError) as e: print('refused')"
    )
    expect(expect_exit(context.python(program)).stdout in (b"mapped\n", b"refused\n"), "no answer")


def _output(context: ProbeContext) -> None:
    with context.own(memory_bytes=128 * MIB) as sandbox:
        ran = expect_end(context.sh("cat /dev/zero & cat /dev/zero >&2", sandbox, timeout_s=1.5), ExitKind.TIMED_OUT)
        expect(ran.result.stdout.dropped + ran.result.stderr.dropped > 0, "nothing was dropped")
        kept, profile = len(ran.stdout) + len(ran.stderr), context.spec().profile
        expect(0 < kept <= 2 * profile.keep_output_bytes, f"{kept} bytes were kept")
        expect_equal("kills for memory", ran.result.oom_kills, 0)


def _single_bytes(context: ProbeContext) -> None:
    with context.own(memory_bytes=96 * MIB) as sandbox:
        ran = expect_exit(
            context.python("import os\nfor n in range(30000):\n    os.write(1, b'o'); os.write(2, b'e')", sandbox)
        )
        expect_equal("output", (ran.stdout, ran.stderr), (b"o" * 30000, b"e" * 30000))


_DESCRIPTORS = """
import os, errno
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error: print(errno.errorcode[error.errno], len(held) < 2000)
"""


def _pipes(context: ProbeContext) -> None:
    program = """
import os, fcntl
held = 0
try:
    for _ in range(400):
        r, w = os.pipe(); fcntl.fcntl(w, 1031, 1 << 20); os.set_blocking(w, False); held += os.write(w, bytes(1 << 20))
except OSError as error: print(type(error).__name__)
print(held)
"""
    with context.own(memory_bytes=128 * MIB) as sandbox:
        ran = context.python(program, sandbox)
        expect_end(ran, ExitKind.EXITED, ExitKind.OOM_KILLED)
        expect(ran.stdout or ran.result.oom_kills, "it printed nothing and nothing was killed")


def _sparse(context: ProbeContext) -> None:
    ran = context.sh("echo begun; truncate -s 1024T sparse")
    expect_equal("first output", ran.stdout, b"begun\n")
    expect(ran.result.exit_code != 0 or ran.result.signal, "a file of 1024 TiB was made")
    context.sh("rm -f sparse")


def _file_size(context: ProbeContext) -> None:
    with context.own(file_bytes=2 * MIB) as sandbox:
        context.sh("head -c 5000000 /dev/zero > big", sandbox)
        expect_equal("size", context.stat_file("big", sandbox)[2], 2 * MIB)
        expect_refused(sandbox.files.write((FileWrite(path="big2", content=bytes(2 * MIB + 1)),)), FileError.TOO_LARGE)


def _fills(place: str, field: str) -> Check:
    """Return a check that a directory holds as many bytes as this field of the profile."""
    fill = f"dd if=/dev/zero of={place}/fill bs=1M count=600 2>&1 | grep -o 'No space left on device'"

    def check(context: ProbeContext) -> None:
        size = getattr(context.spec().profile, field)
        with context.own() as sandbox:
            before = context.sh(f"df --output=size,avail --block-size=1 {place} | tail -n 1", sandbox)
            whole, free = before.stdout.split()
            expect_equal("size", whole, str(size).encode())
            ran = context.sh(f"{fill}; wc -c < {place}/fill; rm {place}/fill", sandbox)
            expect_equal("error, and bytes", ran.stdout, b"No space left on device\n%s\n" % free)

    return check


_INODES = """
import errno, os
os.mkdir("/tmp/many")
try:
    for n in range(200000): os.close(os.open(f"/tmp/many/{n}", os.O_CREAT | os.O_WRONLY))
    print("all")
except OSError as error: print(errno.errorcode[error.errno])
"""


def _workspace(context: ProbeContext) -> None:
    with context.own(workspace_bytes=4 * MIB) as sandbox:
        ran = context.sh("head -c 10000000 /dev/zero > fill; wc -c < fill", sandbox)
        expect(0 < int(ran.stdout or b"0") <= 4 * MIB, f"its file has {ran.stdout!r} bytes")
        expect_refused(sandbox.files.write((FileWrite(path="more", content=bytes(100_000)),)), FileError.NO_SPACE)
        expect_exit(context.sh("rm fill", sandbox))
        write_files(sandbox, FileWrite(path="more", content=b"x"))


def _watches(context: ProbeContext) -> None:
    program = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True); n = 0
while n < 100000 and libc.inotify_init1(0) >= 0: n += 1
print(errno.errorcode.get(ctypes.get_errno()))
"""
    expect(expect_exit(context.python(program)).stdout in (b"EMFILE\n", b"ENOMEM\n"), "watches without end were given")


def _spinning(context: ProbeContext) -> None:
    with context.own() as sandbox:
        line = "for n in 1 2 3 4 5 6 7 8; do sh -c 'while :; do :; done' & done; echo lit; wait"
        spinning = context.start_exec(sandbox, context.request("sh", "-c", line, timeout_s=20))
        ran = expect_exit(context.run("echo", "well", sandbox=sandbox))
        expect(ran.took_s < 5, f"another exec took {ran.took_s:.1f} s meanwhile")  # noqa: PLR2004 - far from starving
        expect(spinning.cancel(), "it could not be cancelled")
        expect_equal("first output", expect_end(spinning.end(), ExitKind.CANCELLED).stdout, b"lit\n")


PROBES = (
    Probe(
        "hostile-fork-bomb", "a fork bomb runs into its limit, is ended by its timeout and leaves nothing", _fork_bomb
    ),
    Probe("hostile-shell-fork-bomb", "a fork bomb of the shell's that ignores TERM leaves nothing", _shell_fork_bomb),
    Probe("hostile-thread-bomb", "threads without end run into their limit", _threads),
    Probe("hostile-zombies", "a storm of zombies is reaped", _zombies),
    Probe("hostile-daemons", "forty daemons end with their exec", _daemons),
    Probe(
        "hostile-memory-children", "children that together take too much are killed, not the sandbox", _children_memory
    ),
    Probe("hostile-memory-mapped", "mapped memory counts", _mapped_memory),
    Probe("hostile-address-space", "a mapping of 64 TiB harms nobody", _address_space),
    Probe("hostile-output-flood", "a flood of output is bounded and counted", _output),
    Probe(
        "hostile-output-dribble", "60,000 writes of one byte each arrive and do not exhaust the runner", _single_bytes
    ),
    Probe("hostile-descriptors", "descriptors run into their limit", prints(_DESCRIPTORS, b"EMFILE True\n")),
    Probe("hostile-pipes", "kernel memory in pipes is bounded", _pipes),
    Probe("hostile-sparse-file", "a sparse file of 1024 TiB is refused", _sparse),
    Probe("hostile-file-size", "a file ends at the profile's size", _file_size),
    Probe("hostile-fill-tmp", "/tmp has its size", _fills("/tmp", "tmp_bytes")),  # noqa: S108 - inside
    Probe("hostile-fill-shm", "/dev/shm has its size", _fills("/dev/shm", "shm_bytes")),  # noqa: S108 - inside
    Probe("hostile-inodes", "the number of files in /tmp is bounded", prints(_INODES, b"ENOSPC\n", own=True)),
    Probe("hostile-fill-workspace", "a full workspace is a clear error, and room helps", _workspace),
    Probe("hostile-watches", "file watches run into a limit", _watches),
    Probe(
        "hostile-spinning",
        "eight busy loops do not keep others from running, or themselves from being cancelled",
        _spinning,
    ),
)
