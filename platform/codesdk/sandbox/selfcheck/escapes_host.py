"""Escape probes: the host's files and processes, and the runner."""

from __future__ import annotations

from ast import literal_eval

from codesdk.sandbox.port import ExitKind, FileContent, FileError, FileRefused, FileWrite, Listing
from codesdk.sandbox.selfcheck.behaviour_files import expect_refused, write_files
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.escape_attempts import PRELUDE, refused_with
from codesdk.sandbox.selfcheck.expectations import (
    ProbeExempt,
    ProbeFailed,
    expect,
    expect_end,
    expect_equal,
    expect_exit,
)
from codesdk.sandbox.selfcheck.probe import Check, Probe, prints

_SYSTEM_FILES = """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger", "/proc/irq/0/smp_affinity", "/proc/bus/x",
             "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state"):
    if os.path.exists(path): attempt("write to " + path, lambda: open_to_write(path))
for folder in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*/"), "/sys/kernel"):
    if os.path.isdir(folder): attempt("make a folder in " + folder, lambda: os.mkdir(folder + "/codesdk-probe"))
"""
_CGROUPS = """
import itertools
names = ("release_agent", "cgroup.procs", "devices.allow", "memory.max", "memory.limit_in_bytes", "pids.max", "notify_on_release")
paths = itertools.chain(*(glob.glob("/sys/fs/cgroup/**/" + name, recursive=True) for name in names))
for path in itertools.islice(paths, 200): attempt("write to " + path, lambda: open_to_write(path))
attempt("make a group in /sys/fs/cgroup", lambda: os.mkdir("/sys/fs/cgroup/codesdk-probe"))
"""
_ROOT_FILES = """
for folder in ("/", "/etc", "/usr", "/usr/bin", "/var", "/var/tmp", "/opt", "/home"):
    if os.path.isdir(folder): attempt("make a file in " + folder, lambda: os.open(folder + "/codesdk-probe", os.O_CREAT | os.O_WRONLY))
attempt("write to /etc/passwd", lambda: open_to_write("/etc/passwd"))
attempt("+make a file in /tmp", lambda: os.close(os.open("/tmp/codesdk-probe", os.O_CREAT | os.O_WRONLY)))
"""
_MOUNTED = """
import os
rows = [line.split() for line in open("/proc/self/mountinfo")]
writable = sorted(r[4] for r in rows if "rw" in r[5].split(",") and os.access(r[4], os.W_OK) and os.path.isdir(r[4]))
masked = [p for p in ("/proc/kcore", "/proc/keys", "/proc/timer_list") if os.path.exists(p) and p not in {r[4] for r in rows}]
kinds = {r[4]: r[r.index("-") + 1] for r in rows}
known = ("/proc", "/dev", "/sys", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts", "/run", "/tmp", WORKSPACE, "/sbin/docker-init", "/usr/sbin/docker-init")
strange = sorted(p for p in kinds if p != "/" and not p.startswith(known))
print(writable); print(masked); print(strange)
"""
# Tools lack the permission to write there anyway; read-only mounts are the second barrier.
_READ_ONLY = """
flags, kinds = {}, {}
for line in open("/proc/self/mountinfo"):
    words = line.split()  # the last mount at a place is the one that counts
    flags[words[4]] = words[5].split(",")[0]; kinds[words[4]] = words[words.index("-") + 1]
import os
must = ["/", "/proc/sys", "/sys"]
wanted = must + [p for p in ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger") if os.path.exists(p)]
wanted += [p for p, kind in kinds.items() if kind in ("cgroup", "cgroup2", "proc", "sysfs") and p != "/proc"]
print([flags.get(p) for p in must], [p for p in wanted if flags.get(p) != "ro"])
"""
_PROCESSES = """
import os
mine, found = os.getuid(), []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: found.append((int(pid), os.stat("/proc/" + pid).st_uid, open(f"/proc/{pid}/comm").read().strip()))
    except OSError: pass
strange = [f for f in found if f[1] not in (0, mine) or f[2] in ("kthreadd", "systemd", "dockerd", "containerd", "containerd-shim", "sshd", "bash")]
print(len(found) < 40, (1 in [f[0] for f in found]), strange)
"""
_OTHERS = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
mine, allowed, seen = os.getuid(), [], []
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and os.stat("/proc/" + p).st_uid != mine]
def attempt(word, action, into=allowed):
    try:
        if action() == -1: return
    except OSError: return
    into.append(word)
def open_descriptor(path, how):
    # What everybody may open by its own path is no way in.
    if os.readlink(path) in ("/dev/null", WORKSPACE) or os.readlink(path).endswith("/oom_score_adj"): return -1
    return os.open(path, how | os.O_NONBLOCK)
for pid in others:
    for task in os.listdir(f"/proc/{pid}/task"):
        base = f"/proc/{pid}/task/{task}/"
        attempt(f"kill {pid}", lambda: os.kill(int(task), 0))
        attempt(f"ptrace {pid}", lambda: libc.ptrace(16, int(task), 0, 0))
        attempt(f"mem {pid}", lambda: os.read(os.open(base + "mem", os.O_RDONLY), 1))
        attempt(f"exe {pid}", lambda: os.open(base + "exe", os.O_WRONLY))
        attempt(f"prlimit {pid}", lambda: resource.prlimit(int(task), resource.RLIMIT_NOFILE, (0, 0)))
        for number in range(32):
            for how in (os.O_RDONLY, os.O_WRONLY):
                attempt(f"fd {number} of {pid}", lambda: open_descriptor(base + f"fd/{number}", how))
        for name in ("environ", "maps"): attempt(f"{name} {pid}", lambda: os.read(os.open(base + name, os.O_RDONLY), 1), seen)
        for name in ("fd", "root"): attempt(f"{name} {pid}", lambda: os.listdir(base + name), seen)
print(1 in others, len(others) > 1, allowed); print(1 in others, len(others) > 1, seen)
"""
_OTHER_EXEC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
mine, reached, found = os.getpid(), [], False
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: line = open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError: continue
    if MARKER.encode() not in line.split(b"\\0"): continue
    found = True
    for name, how in (("mem", os.O_RDWR), ("environ", 0), ("maps", 0), ("cwd/.", 0), ("root/.", 0), ("exe", 0), ("fd/0", 0)):
        try: os.close(os.open(f"/proc/{pid}/{name}", how)); reached.append(name)
        except OSError: pass
    if libc.ptrace(16, int(pid), 0, 0) == 0: reached.append("ptrace")
landlock = libc.syscall(444, None, ctypes.c_size_t(0), 1) >= 2
os.close(os.open(f"/proc/{mine}/mem", os.O_RDWR))  # a control: one's own can be opened
print(found, landlock, sorted(reached))
"""
_SECRETS = """
import os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: words = open(f"/proc/{pid}/environ", "rb").read()
    except OSError: continue
    if b"codesdk-planted" in words: found.append("planted")
    if b"codesdk-own" in words: found.append("own")
print(sorted(found))
"""
_DEVICES = """
import os
usual = {"console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}
print("null" in os.listdir("/dev"), sorted(set(os.listdir("/dev")) - usual))
"""
_LIMITS = """
import os
def first(*paths):
    for path in paths:
        try: return open("/sys/fs/cgroup/" + path).read().strip()
        except OSError: pass
print(first("memory.max", "memory/memory.limit_in_bytes"), first("pids.max", "pids/pids.max"))
"""
_IPC = "print([len(open('/proc/sysvipc/' + n).read().splitlines()) for n in ('shm', 'sem', 'msg')])"


def _mounts(context: ProbeContext) -> None:
    workspace = context.spec().profile.workspace
    lines = expect_exit(context.python(f"WORKSPACE = {workspace!r}\n{_MOUNTED}")).stdout.decode().splitlines()
    expect(len(lines) == 3, f"it printed {lines}")  # noqa: PLR2004 - what it prints
    places, known = set(literal_eval(lines[0])), {"/dev/mqueue", "/dev/shm", "/tmp", workspace}  # noqa: S108 - inside
    expect({"/tmp", workspace} <= places, f"only {sorted(places)} can be written")  # noqa: S108 - inside
    expect_equal(
        "writable places besides the known; unmasked; unknown mounts",
        [sorted(places - known), *lines[1:]],
        [[], "[]", "[]"],
    )


def _of_others(context: ProbeContext) -> list[bytes]:
    return expect_exit(
        context.python(f"WORKSPACE = {context.spec().profile.workspace!r}\n{_OTHERS}")
    ).stdout.splitlines()


def _others(context: ProbeContext) -> None:
    expect_equal("process 1, more, and what was allowed", _of_others(context)[:1], [b"True True []"])


def _others_seen(context: ProbeContext) -> None:
    expect_equal("process 1, more, and what was seen", _of_others(context)[1:], [b"True True []"])


def _other_exec(context: ProbeContext) -> None:
    marker = context.marker()
    waits = "import time; print('up', flush=True); time.sleep(60)"
    neighbour = context.start_exec(context.sandbox, context.request("python3", "-I", "-c", waits, marker))
    ran = expect_exit(context.python(f"MARKER = {marker!r}\n{_OTHER_EXEC}")).stdout.decode()
    neighbour.cancel()
    neighbour.end()
    found, has_landlock, reached = ran.strip().split(" ", 2)
    expect_equal("the other exec was found", found, "True")
    if has_landlock == "False" and reached != "[]":
        raise ProbeExempt(f"this kernel lacks Landlock 2 (Linux 5.19), so an exec reaches of another: {reached}")
    expect_equal("what an exec reached of another", reached, "[]")


def _secrets(context: ProbeContext) -> None:
    expect_exit(context.sh("setsid sleep 60 & (sleep 60 &) ; echo left", env={"SECRET": "codesdk-planted"}))
    expect_equal("found", expect_exit(context.python(_SECRETS, env={"OWN": "codesdk-own"})).stdout, b"['own']\n")


def _limits(context: ProbeContext) -> None:
    profile = context.spec().profile
    seen = expect_exit(context.python(_LIMITS)).stdout.decode().split()
    expect_equal("memory, processes", seen, [str(profile.memory_bytes // 4096 * 4096), str(profile.pids)])


def _descriptors(context: ProbeContext) -> None:
    program = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1], os.getcwd())"
    workspace = context.spec().profile.workspace
    expect_equal(
        "descriptors and directory", expect_exit(context.python(program)).stdout.decode(), f"[0, 1, 2] {workspace}\n"
    )
    for number in range(3, 12):  # as in CVE-2024-21626
        expect_end(context.run("pwd", cwd=f"/proc/self/fd/{number}"), ExitKind.SPAWN_FAILED)


def _links(context: ProbeContext) -> None:
    expect_exit(
        context.sh(
            "mkdir -p ways; cd ways; ln -sfn /etc folder; ln -sfn /etc/passwd file; ln -sfn ../../etc/passwd up; ln -sfn /proc/1/root root"
        )
    )
    files = context.sandbox.files
    for path in ("ways/file", "ways/folder/passwd", "ways/up", "ways/root/etc/passwd"):
        expect_refused(files.read(path), FileError.OUTSIDE)
    expect_refused(files.list("ways/folder"), FileError.OUTSIDE)
    expect_refused(files.write((FileWrite(path="ways/folder/x", content=b""),)), FileError.OUTSIDE)
    expect_refused(files.write((FileWrite(path="ways/file", content=b""),)), FileError.OUTSIDE, FileError.NOT_A_FILE)
    shown = files.list("ways", depth=3)
    expect_equal("entries", isinstance(shown, Listing) and len(shown.entries), 4)


_SWAP = """
import os, shutil, time
name = NAME
for path in ("/tmp/outside-" + name, name, "bad-" + name, "spare-" + name):
    if os.path.islink(path): os.unlink(path)
    else: shutil.rmtree(path, ignore_errors=True)
os.makedirs("/tmp/outside-" + name); open("/tmp/outside-" + name + "/file", "w").write("outside")
def fresh():
    os.makedirs(name, exist_ok=True); open(name + "/file", "w").write("inside"); os.symlink("/tmp/outside-" + name, "bad-" + name)
fresh()
print("swapping", flush=True)
end, swaps = time.time() + 1.5, 0
while time.time() < end:
    try:
        os.rename(name, "spare-" + name); os.rename("bad-" + name, name)
        os.rename(name, "bad-" + name); os.rename("spare-" + name, name); swaps += 1
    except OSError:  # a write created the directory again while it was missing
        for path in (name, "bad-" + name, "spare-" + name):
            if os.path.islink(path): os.unlink(path)
            else: shutil.rmtree(path, ignore_errors=True)
        fresh()
print(swaps, open("/tmp/outside-" + name + "/file").read(), sorted(os.listdir("/tmp/outside-" + name)))
"""


def _race(name: str, *, write: bool) -> Check:
    def check(context: ProbeContext) -> None:
        program = f"NAME = {name!r}\n{_SWAP}"
        swapping = context.start_exec(context.sandbox, context.request("python3", "-I", "-c", program))
        seen: set[bytes] = set()
        tries = 0
        while swapping.alive:
            if write:
                context.sandbox.files.write((FileWrite(path=f"{name}/file", content=b"written"),))
            else:
                answer = context.sandbox.files.read(f"{name}/file")
                seen.add(answer.data if isinstance(answer, FileContent) else b"")
            tries += 1
        swaps, *left = expect_exit(swapping.end()).stdout.decode().splitlines()[-1].split(" ", 1)
        expect(tries > 10 and int(swaps) > 10, f"{tries} tries met {swaps} swaps: no race")  # noqa: PLR2004
        expect_equal("files outside", left, ["outside ['file']"])
        expect(b"outside" not in seen, "a read led out of the workspace")

    return check


def _hard_links(context: ProbeContext) -> None:
    program = (
        PRELUDE
        + """
for path in ("/etc/passwd", "/etc/hosts", "/usr/bin/env"):
    attempt("link " + path, lambda: os.link(path, "hard-probe"))
"""
    )
    answers = {line.split()[-1] for line in expect_exit(context.python(program)).stdout.decode().splitlines()}
    expect(answers and answers <= {"EXDEV", "EPERM", "EROFS"}, f"links to the system's files: {answers}")


def _own_files(context: ProbeContext) -> None:
    """Check that a tool can read its own hard links but not root's files."""
    write_files(context.sandbox, FileWrite(path="mine", content=b"x"))
    expect_exit(context.sh("ln -f mine second && cat second"))
    answer = context.sandbox.files.read("second")
    if isinstance(answer, FileRefused):
        raise ProbeFailed(f"an own hard link was refused: {answer.error}")
    ran = context.sh("cat /etc/shadow; echo tried")
    expect_equal("stdout", ran.stdout, b"tried\n")


PROBES = (
    Probe(
        "escape-system-files",
        "/proc/sys, sysrq and /sys cannot be written",
        refused_with(_SYSTEM_FILES, "EROFS", "EACCES"),
    ),
    Probe(
        "escape-cgroups",
        "no cgroup file can be written, release_agent least of all, and no group made",
        refused_with(_CGROUPS, "EROFS", "EACCES"),
    ),
    Probe("escape-root-files", "the root is read-only; /tmp is not", refused_with(_ROOT_FILES, "EROFS", "EACCES")),
    Probe(
        "escape-read-only",
        "the root, /sys, cgroups and the kernel's settings are mounted read-only",
        prints(_READ_ONLY, b"['ro', 'ro', 'ro'] []\n", "root, /proc/sys, /sys; writable ones"),
    ),
    Probe(
        "escape-mounted",
        "nothing of the host is mounted; the writable places are known; kernel files are masked",
        _mounts,
    ),
    Probe(
        "escape-processes",
        "only the sandbox's own processes are seen",
        prints(_PROCESSES, b"True True []\n", "few, process 1, foreign"),
    ),
    Probe(
        "escape-runner",
        "no process of ours can be signalled, traced, read, written to, overwritten or limited",
        _others,
    ),
    Probe(
        "escape-runner-seen",
        "environment, memory map, descriptors and root of our processes are not shown",
        _others_seen,
    ),
    Probe(
        "escape-other-exec",
        "a process can't be traced, nor its memory, descriptors, environment or directories opened, by another exec",
        _other_exec,
    ),
    Probe("escape-secrets", "what an exec left behind shows its secrets to nobody", _secrets),
    Probe("escape-dev", "/dev holds the usual devices only", prints(_DEVICES, b"True []\n", "null, and unusual ones")),
    Probe("escape-limits", "the kernel holds the limits that were asked", _limits),
    Probe("escape-descriptors", "a tool inherits three descriptors, and no directory of the host", _descriptors),
    Probe(
        "escape-ipc",
        "no shared memory, semaphore or queue of others is seen",
        prints(_IPC, b"[1, 1, 1]\n", "lines of the tables"),
    ),
    Probe("escape-links", "links out of the workspace are shown and never followed", _links),
    Probe(
        "escape-race-reads",
        "a read through a directory that is swapped for a link never leads out (CVE-2018-15664)",
        _race("raced-read", write=False),
    ),
    Probe(
        "escape-race-writes",
        "a write through a directory that is swapped for a link never leads out",
        _race("raced-write", write=True),
    ),
    Probe("escape-hard-links", "the system's files cannot be linked into the workspace", _hard_links),
    Probe("escape-own-files", "root's files are read by nobody", _own_files),
)
