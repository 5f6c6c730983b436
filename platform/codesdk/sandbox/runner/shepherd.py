"""Starting process trees: the nursery, the shepherd of each exec, and the leader that becomes the tool.

The nursery is forked from the runner before it has threads or output in memory, so a fork costs the same always. It
forks shepherds on request. A shepherd is the subreaper of one exec: whatever the tree does (double fork, setsid), its
processes stay beneath it, and when it has no child left, the tree has ended. Shepherds are root's: tools cannot signal
them.
"""

from __future__ import annotations

import array
import errno
import gc
import json
import os
import resource
import signal
import socket
import struct
from typing import Any, Callable

from codesdk.sandbox.runner import kernel, probe
from codesdk.sandbox.runner.beneath import Refused, Root, relative

_WAIT_ALL = 0x40000000  # __WALL: also children whose exit signal is not SIGCHLD (clone with CLONE_PARENT)
_LENGTH = struct.Struct(">I")
_OOM_SCORE = 500
"""Tools are killed for memory before the runner. A tool can lower its own again: this helps the honest case only."""
_NICE = 4
"""Tools yield to the runner inside the sandbox; between sandboxes the CPU share of the container counts, not this."""
Limits = dict[str, int]


class Config:
    """What every tool process gets."""

    def __init__(self, uid: int, gid: int, workspace: str, limits: Limits) -> None:
        self.uid = uid
        self.gid = gid
        self.workspace = workspace
        self.limits = limits


def send_request(control: socket.socket, request: dict[str, Any]) -> None:
    """Tell a shepherd what to start."""
    text = json.dumps(request).encode()
    control.sendall(_LENGTH.pack(len(text)) + text)


class Nursery:
    """The runner's handle on the process that forks shepherds."""

    def __init__(self, config: Config) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._runner = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _in_child(lambda: _nurse(theirs, config, self._runner))
        theirs.close()

    def shepherd(self, control: socket.socket, stdin: int, stdout: int, stderr: int) -> None:
        """Have a shepherd forked; it takes these descriptors and answers on its end of `control`."""
        fds = array.array("i", [control.fileno(), stdin, stdout, stderr])
        self._socket.sendmsg([b"s"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])


def _in_child(body: Callable[[], None]) -> None:
    """Run the body of a forked process; it never returns into its parent's code."""
    code = 70
    try:
        body()
        code = 0
    except BaseException as error:  # noqa: BLE001 - a forked child has nobody to raise to; the cause goes to the log
        os.write(2, (f"codesdk runner, child: {error!r}\n").encode())
    finally:
        os._exit(code)


def _nurse(requests: socket.socket, config: Config, runner: int) -> None:
    gc.disable()
    gc.freeze()
    signal.set_wakeup_fd(-1)
    # The protocol's descriptors must not be reachable from here on, whatever a bug later inherits.
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # shepherds are reaped by the kernel; the runner sees their socket end
    space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
    while True:
        data, ancillary, _, _ = requests.recvmsg(1, space, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return  # the runner is gone, and the container goes with it
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        stdio = fds.tolist()
        try:
            if os.fork() == 0:
                requests.close()
                _in_child(lambda stdio=stdio: _shepherd(stdio, config, runner))  # type: ignore[misc]
        except OSError as error:
            # No process to be had: closing its socket tells the runner, and the nursery lives on.
            os.write(2, f"codesdk runner, nursery: {error!r}\n".encode())
        for fd in fds:
            os.close(fd)


def _say(control: socket.socket, **words: Any) -> None:
    control.sendall(json.dumps(words).encode() + b"\n")


def _receive(control: socket.socket) -> dict[str, Any] | None:
    data = bytearray()
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        part = control.recv(1 << 16)
        if not part:
            return None
        data += part
    found: dict[str, Any] = json.loads(data[_LENGTH.size :])
    return found


def _shepherd(fds: list[int], config: Config, runner: int) -> None:
    control = socket.socket(fileno=fds[0])
    stdio = fds[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.become_subreaper()
    outcome, outcome_child = os.pipe()
    # The leader is forked before there is anything to run, which takes the fork out of the time of a start. Until then
    # it is root's, so no tool can signal or trace it while it waits.
    leader = os.fork()
    if leader == 0:
        _in_child(lambda: _lead(control, config, stdio, outcome_child, runner))
    for fd in (*stdio, outcome_child):
        os.close(fd)
    _say(control, shepherd=os.getpid())
    _watch(control, leader, outcome)


def _watch(control: socket.socket, leader: int, outcome: int) -> None:
    """Reap until nothing of the tree is left, and say what happened."""
    cpu, peak, options = 0.0, 0, _WAIT_ALL
    said: dict[str, Any] = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, options)
        except ChildProcessError:
            break
        if pid == 0:  # the leader has ended and others of its tree live on
            _say(control, **said)
            said, options = {}, _WAIT_ALL
            continue
        cpu += usage.ru_utime + usage.ru_stime
        peak = max(peak, usage.ru_maxrss)
        if pid == leader:
            # Read only now: its other end closed with the exec, or with the leader's end.
            failed = os.read(outcome, 4096).decode("utf-8", "replace")
            said, options = {"leader": status, **({"failed": failed} if failed else {})}, _WAIT_ALL | os.WNOHANG
    _say(control, empty=True, cpu_s=cpu, max_rss_kb=peak, **said)


def _lead(control: socket.socket, config: Config, stdio: list[int], outcome: int, runner: int) -> None:
    """Wait for the request and become the tool. Any failure is one line on `outcome`."""
    stage = "prepare"
    request: dict[str, Any] = {}
    try:
        os.setsid()
        for target, fd in enumerate(stdio):
            os.dup2(fd, target, inheritable=True)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(0o022)
        stage = "limit"
        _limit(config.limits)
        os.setgroups([])
        os.setresgid(config.gid, config.gid, config.gid)
        _rehearse(config)
        received = _receive(control)
        if received is None:
            os._exit(0)  # the runner is gone
        request = received
        stage = "become the tool user"
        os.setresuid(config.uid, config.uid, config.uid)
        stage = "enter the working directory"
        root = Root(config.workspace)
        root.mend()
        os.fchdir(root.open(relative(request["cwd"], config.workspace), os.O_RDONLY | os.O_DIRECTORY))
        stage = "run"
        if request.get("probe"):
            os.write(1, json.dumps(probe.observe(runner)).encode())
            os._exit(0)
        argv, environment = request["argv"], request["env"]
        _execute(argv, environment)
    except OSError as error:
        what = request["argv"][0] if stage == "run" else request["cwd"] if stage.startswith("enter") else ""
        line = f"cannot {stage} {what}: {error.strerror}"
        os.write(outcome, line.encode("utf-8", "replace")[:4096])
    except (Refused, ValueError) as error:
        os.write(outcome, (f"cannot {stage}: {error}").encode("utf-8", "replace")[:4096])
    os._exit(127)


def _rehearse(config: Config) -> None:
    """Touch what the start will need: after a fork, the first write to each page costs a fault."""
    try:
        json.loads(json.dumps({"argv": ["true"], "cwd": ".", "env": dict(os.environ), "timeout_s": 1.0}))
        root = Root(config.workspace)
        root.mend()
        os.close(root.open(relative(".", config.workspace), os.O_RDONLY | os.O_DIRECTORY))
        os.close(root.fd)
        os.setresuid(-1, -1, -1)
        _execute(["codesdk-no-such-program"], {"PATH": "/nonexistent"})
    except (OSError, Refused):
        pass  # the real start meets it again and reports it


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """Search PATH and execute. `os.execvpe` would import a module for it, half a millisecond in every exec."""
    name = argv[0]
    if "/" in name:
        os.execve(name, argv, environment)  # noqa: S606 - this is what the sandbox is for
    denied: OSError | None = None
    for directory in environment.get("PATH", os.defpath).split(":"):
        try:
            os.execve((directory or ".") + "/" + name, argv, environment)  # noqa: S606 - likewise
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error  # another directory may hold one that may be executed
    raise denied or FileNotFoundError(errno.ENOENT, "no such program on PATH")


def _limit(limits: Limits) -> None:
    os.nice(_NICE)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(_OOM_SCORE))
    for name, value in limits.items():
        number = getattr(resource, "RLIMIT_" + name.upper(), None)
        if number is None:
            continue  # this Python does not know the limit; the container's own ulimits stand behind it
        _, hard = resource.getrlimit(number)
        # Only root outside may raise a limit.
        held = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (held, held))
