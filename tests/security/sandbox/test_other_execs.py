"""One exec and another of the same sandbox: they share a uid, and neither can reach into the other's processes."""

from __future__ import annotations

import json

import pytest

from codesdk.domain.attestation import ExecSeparation
from local_sandboxes import local_sandboxes, plain
from sandboxes import alive, docker_sandboxes, request, run, spec

VICTIM = """
import os, sys, time
text = bytearray(b"3 ") + bytes(map(ord, "FAILED"))
print("up", flush=True)
sys.stdin.read()
print(text.decode())
"""
ATTACK = """
import ctypes, errno, json, os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
if os.fork(): time.sleep(600)  # the exec lasts as long as its first process
os.setsid()
libc = ctypes.CDLL(None, use_errno=True)
word = sys.argv[1].encode()

def called(result):
    if result == -1: raise OSError(ctypes.get_errno(), "refused")
def number(x86_64, aarch64): return {"x86_64": x86_64, "aarch64": aarch64}[os.uname().machine]
def vector(): return (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
buffer = ctypes.create_string_buffer(8)

def attempts(pid):
    base = f"/proc/{pid}/"
    task = f"{base}task/{pid}/"
    opened = {name: (lambda path=path, how=how: os.close(os.open(path, how))) for name, path, how in (
        ("mem to write", base + "mem", os.O_WRONLY), ("mem of a thread", task + "mem", os.O_RDWR),
        ("mem to read", base + "mem", os.O_RDONLY), ("environ", base + "environ", os.O_RDONLY),
        ("maps", base + "maps", os.O_RDONLY), ("stdout", base + "fd/1", os.O_WRONLY),
        ("stdin of a thread", task + "fd/0", os.O_RDONLY), ("cwd", base + "cwd/.", os.O_RDONLY),
        ("root", base + "root/.", os.O_RDONLY), ("exe", base + "exe", os.O_RDONLY),
    )}
    return {
        **opened,
        "name of a descriptor": lambda: os.readlink(base + "fd/1"),
        "name of the directory": lambda: os.readlink(base + "cwd"),
        "process_vm_readv": lambda: called(libc.syscall(number(310, 270), pid, vector(), 1, vector(), 1, 0)),
        "process_vm_writev": lambda: called(libc.syscall(number(311, 271), pid, vector(), 1, vector(), 1, 0)),
        "ptrace": lambda: (called(libc.ptrace(16, pid, 0, 0)), os.waitpid(pid, 0x40000000), libc.ptrace(17, pid, 0, 0)),
        "pidfd_getfd": lambda: called(libc.syscall(438, os.pidfd_open(pid), 1, 0)),
    }

def made(pid):
    done = []
    for name, action in attempts(pid).items():
        try: action()
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS): continue
        done.append(name)  # also what fails later, at a wrong address
    return done

def forge(pid):
    # Where the memory can be opened: what a test run is about to print.
    for line in open(f"/proc/{pid}/maps"):
        places, mode = line.split()[:2]
        if mode[:2] != "rw": continue
        start, end = (int(place, 16) for place in places.split("-"))
        with open(f"/proc/{pid}/mem", "r+b", 0) as memory:
            try: memory.seek(start); data = memory.read(end - start)
            except (OSError, ValueError, OverflowError): continue
            at = data.find(b"3 " + b"FAILED")
            while at >= 0:
                memory.seek(start + at); memory.write(b"0"); at = data.find(b"3 " + b"FAILED", at + 1)

r, w = os.pipe()
own = os.fork()
if own == 0: os.dup2(w, 1); os.write(1, b"."); time.sleep(600)
os.read(r, 1)
print(json.dumps(made(own)), flush=True)
sys.stdin.readline()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: line = open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError: continue
    if line.endswith(word + b"\\0") and b"setsid" not in line:
        print(json.dumps(made(int(pid))), flush=True)
        try: forge(pid)
        except OSError: pass
        print("tried", flush=True)
time.sleep(600)
"""
OWN = {"mem to write", "mem to read", "mem of a thread", "environ", "maps", "stdout", "cwd", "root", "exe"}
"""What each exec may open of its own children."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("docker", marks=pytest.mark.engine),
        pytest.param("engine", marks=pytest.mark.engine),
        "bubblewrap",
        "plain",
    ],
)
def world(request):
    """Opens sandboxes of each driver, and with the engine's filter, which lets debuggers through."""
    if request.param in ("docker", "engine"):
        drivers, image = (
            docker_sandboxes(request.getfixturevalue("engine").host),
            request.getfixturevalue("sandbox_image"),
        )
    else:
        found = plain() if request.param == "plain" else request.getfixturevalue("bubblewrap_here")
        drivers, image = local_sandboxes(found), ""
    profile = {"seccomp": "engine"} if request.param == "engine" else {}
    with drivers as made:
        yield lambda **more: made.open(spec(made._instance, image or made.image, **profile, **more))


@pytest.fixture(scope="module")
def place(world):
    """One sandbox."""
    return world()


def lines(sandbox, call: str, count: int) -> list[str]:
    """The first lines that a background exec prints."""
    text = b""
    while text.count(b"\n") < count:
        found = sandbox.processes.output(call, 1, "stdout", len(text), wait_s=10)
        assert found is not None
        assert found.data, (text, sandbox.processes.output(call, 1, "stderr", 0).data)
        text += found.data
    return text.decode().splitlines()


@pytest.fixture
def attacked(place):
    """What an exec that was left running did to its own child and to a later exec, and what the later one printed."""
    attack = request("python3", "-c", ATTACK, "the-victim", stdin_open=True)
    place.processes.start(attack)
    (own,) = lines(place, attack.call, 1)
    victim = request("python3", "-c", VICTIM, "the-victim", stdin_open=True)
    place.processes.start(victim)
    lines(place, victim.call, 1)
    assert place.processes.write(attack.call, 1, b"go\n")
    _, other, _ = lines(place, attack.call, 3)
    assert place.processes.write(victim.call, 1, b"", end=True)
    yield set(json.loads(own)), set(json.loads(other)), lines(place, victim.call, 2)[1]
    for asked in (attack, victim):
        place.cancel(asked.call, 1)
        place.acknowledge(asked.call, 1)


def test_what_an_exec_left_running_reaches_into_no_later_exec(attacked):
    own, other, printed = attacked
    assert own >= OWN, "the attempts do not work"
    assert (other, printed) == (set(), "3 FAILED")


@pytest.mark.engine
@pytest.mark.parametrize("world", ["engine"], indirect=True)
def test_a_debugger_works_within_its_exec(attacked):
    assert "ptrace" in attacked[0]


def test_the_attestation_says_so(place):
    assert place.attestation.exec_separation is ExecSeparation.FULL


def test_files_move_between_directories_and_file_systems(place):
    line = "mkdir -p a b && echo x > a/f && mv a/f b/g && ln b/g a/h && t=$(mktemp -d) && mv b/g $t && cat a/h $t/g && rm -r $t"
    assert run(place, "sh", "-ec", line).stdout == b"x\nx\n"
    program = (
        "import os; os.makedirs('c', exist_ok=True); open('n', 'w').close(); os.rename('n', 'c/n'); os.link('c/n', 'l')"
    )
    assert run(place, "python3", "-c", program).result.exit_code == 0


def test_without_background_processes_nothing_outlives_its_call(world):
    sandbox = world(background_processes=False)
    line = "(trap '' TERM HUP INT; exec setsid sh -c 'sleep 904.1; sleep 904.1') & (setsid sh -c 'sleep 904.1 &' &); echo done"
    for _ in range(3):
        assert run(sandbox, "sh", "-c", line).stdout == b"done\n"
        assert not alive(sandbox, "904.1")
