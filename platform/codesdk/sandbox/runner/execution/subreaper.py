"""The fork server, and the subreapers that start tools and reap their process trees.

The runner forks the fork server before the first exec and shuts it down when idle. The fork server holds no output, so
the cost of a fork stays the same, and an idle sandbox runs only one of our processes. It forks subreapers on request.
Each serves one exec at a time: processes of the tree stay below it even after a double fork or setsid. When it has no
child left, the tree has ended and the subreaper is free for the next exec. Subreapers run as root, so tools can't
signal them; at most one has the tool's real uid, and only while no tool process exists.

Each subreaper enters a Landlock domain of its own, so that the trees of two subreapers can't reach each other's memory.
"""

from __future__ import annotations

import _socket
import gc
import os
import resource
import struct

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.execution import escaped_processes
from codesdk.sandbox.runner.execution.spawn import Program
from codesdk.sandbox.runner.protocol import wire
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, Callable
else:
    import _signal as signal  # `signal` itself builds enums: half a megabyte

_WAIT_ALL = 0x40000000  # __WALL: also children whose exit signal is not SIGCHLD (clone with CLONE_PARENT)
_LENGTH = struct.Struct(">I")
_FD = struct.Struct("i")
_STDERR = 2
_SPACE = _socket.CMSG_SPACE(4 * _FD.size)  # stdio, and an end of a pipe (see `Execs`)
_OOM_SCORE = 500
"""Makes the OOM killer prefer tools to the runner. A tool can lower its own score, so this is no defence."""
NO_PROCESS = -1
"""The fork server's pid while it isn't running. Not 0, which is the parent of some processes."""
_NICE = 4
"""Makes tools yield to the runner. Affects one sandbox only; between sandboxes the containers' CPU shares decide."""


class Config:
    """Ids, workspace and limits of tool processes."""

    def __init__(self, uid: int, gid: int, workspace: str, limits: dict[str, int]) -> None:
        self.uid = uid
        self.gid = gid
        self.workspace = workspace
        self.limits = limits

    @property
    def has_own_uid(self) -> bool:
        """Whether tools run under another uid than the runner. False for the local driver without root."""
        return self.uid != os.getuid()


def send_request(control: _socket.socket, request: dict[str, Any], stdio: list[int], other: list[int]) -> None:
    """Send a subreaper its exec request and the descriptors. `other`: one end of the start barrier, see `Execs`."""
    text = wire.dump_json({**request, "stdio": len(stdio)})
    sent = control.sendmsg([_LENGTH.pack(len(text)) + text], _pass_fds(stdio + other))
    if sent < _LENGTH.size + len(text):
        control.sendall((_LENGTH.pack(len(text)) + text)[sent:])


def _pass_fds(fds: list[int]) -> list[tuple[int, int, bytes]]:
    return [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(map(_FD.pack, fds)))]


def _received_fds(ancillary: list[Any]) -> list[int]:
    return [fd for _, _, content in ancillary for (fd,) in _FD.iter_unpack(content)]


class ForkServer:
    """The runner's handle on the fork server."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._runner = os.getpid()
        self._socket: _socket.socket | None = None
        self.pid = NO_PROCESS

    def subreaper(self, control: _socket.socket) -> None:
        """Fork a subreaper that serves this control socket; starts the fork server if needed.

        Raises:
            OSError: no process available.
        """
        ours = self._socket or self._fork()
        ours.sendmsg([b"s"], _pass_fds([control.fileno()]))

    def _fork(self) -> _socket.socket:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        gc.freeze()  # a collection writes to every object it visits, which would unshare every page
        try:
            pid = os.fork()  # safe with threads: the child uses nothing that they may have locked
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            _in_child(lambda: _serve_forks(theirs, self._config, self._runner))
        theirs.close()
        self.pid, self._socket = pid, ours
        return ours

    def shut_down(self) -> None:
        """Stop the fork server; it restarts on demand. Dismiss its subreapers first."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self.pid = None, NO_PROCESS
            gc.collect()  # before the next freeze, and in a quiet moment
            kernel.trim_memory()


def _in_child(body: Callable[[], None]) -> None:
    """Run the body of a forked process and exit; never returns."""
    code = 70
    try:
        body()
        code = 0
    except BaseException as error:  # noqa: BLE001 - a forked child has nobody to raise to; the cause goes to the log
        os.write(2, (f"codesdk runner, child: {error!r}\n").encode())
    finally:
        os._exit(code)


def _serve_forks(requests: _socket.socket, config: Config, runner: int) -> None:
    gc.disable()
    signal.set_wakeup_fd(-1)
    _close_fds_except(requests.fileno())
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # The kernel reaps the subreapers; the runner notices EOF on their sockets.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, ancillary, _, _ = requests.recvmsg(1, _SPACE, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return  # the runner has ended, and with it the container
        (control,) = _received_fds(ancillary)
        try:
            if os.fork() == 0:
                requests.close()
                _in_child(lambda control=control: Subreaper(control, config, runner).serve())  # type: ignore[misc]
        except OSError as error:
            # No process available: closing the socket tells the runner, and the fork server continues.
            os.write(2, f"codesdk runner, fork server: {error!r}\n".encode())
        os.close(control)


def _close_fds_except(kept: int) -> None:
    """Close the inherited descriptors: tools must not reach the protocol, and an open copy delays a socket's EOF."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > _STDERR and fd != kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the descriptor that listdir used


class Subreaper:
    """Runs one exec at a time and reaps its process tree."""

    def __init__(self, control: int, config: Config, runner: int) -> None:
        self._control = _socket.socket(fileno=control)
        self._config = config
        self._runner = runner
        self._root: Root | None = None
        # Tools can signal this process where they share its uid, so block all signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._is_reaper = kernel.become_subreaper()
        self._starts = 0
        self._has_domain = False
        # Tools inherit these: posix_spawn can't set them.
        os.umask(0o022)
        os.nice(_NICE)
        self._has_own_uid = config.has_own_uid  # computed once: later this process has the tool's uid at times
        if self._has_own_uid:
            os.setgroups([])
            os.setresgid(config.gid, config.gid, config.gid)
        else:
            kernel.show_memory()  # an undumpable process without root can't write its own oom_score_adj
        _set_rlimits(config.limits)
        self._score = os.open("/proc/self/oom_score_adj", os.O_RDWR)
        self._own_score = os.read(self._score, 16).strip()
        kernel.hide_memory()  # its next exec must not be reached through it

    def serve(self) -> None:
        """Serve requests until the runner closes the socket."""
        self._report(subreaper=os.getpid())
        while True:
            received = self._receive()
            if received is None:
                return
            request, fds = received
            stdio, other = fds[: request["stdio"]], fds[request["stdio"] :]
            if not request.get("is_first"):
                for fd in other:
                    os.read(fd, 1)  # EOF once the subreaper with the other end is root again
            leader, failed = self._start(request, stdio)
            for fd in fds:
                os.close(fd)
            if failed:
                self._report(leader=127 << 8, failed=failed, empty=True, cpu_s=0.0, max_rss_kb=0)
            else:
                self._reap_tree(leader)

    def _report(self, **words: Any) -> None:
        self._control.sendall(wire.dump_json(words) + b"\n")

    def _receive(self) -> tuple[dict[str, Any], list[int]] | None:
        data = bytearray()
        stdio: list[int] = []
        while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            part, ancillary, _, _ = self._control.recvmsg(1 << 16, _SPACE, _socket.MSG_CMSG_CLOEXEC)
            if not part:
                return None
            data += part
            stdio += _received_fds(ancillary)
        return wire.load_json(bytes(data[_LENGTH.size :])), stdio

    def _start(self, request: dict[str, Any], stdio: list[int]) -> tuple[int, str]:
        """Start the leader with the tool's rights; returns its pid and "", or 0 and the reason for the failure."""
        uid = self._config.uid
        # With the tool's real uid this process could be killed by tools, so take it only while none runs. See `Execs`.
        is_open = bool(request.get("is_first")) and not request.get("probe")
        what = ""
        doing = "keep the exec's limits"
        try:
            _set_rlimits(request.get("limits", {}))  # permanent: the runner won't reuse this subreaper
            doing = "become the tool user"
            os.pwrite(self._score, b"%d" % _OOM_SCORE, 0)
            if self._has_own_uid:
                if not self._is_reaper and not request.get("probe"):
                    self._starts += 1
                    os.setgroups([escaped_processes.group_of_exec(self._starts)])
                # Root stays the saved uid, so that we can return to it. A spawned program can't: execve overwrites it.
                kernel.set_thread_uids(uid if is_open else 0, uid, 0)
            doing, what = "enter the working directory", " " + str(request["cwd"])
            self._enter(request["cwd"])
            doing, what = "run", " " + str(request["argv"][0])
            if request.get("probe"):
                return self._probe(stdio), ""
            self._enter_domain()
            program = Program(request["argv"], request["env"], stdio, request.get("tty"))
            return program.spawn() if is_open or not self._has_own_uid else program.fork(uid), ""
        except OSError as error:
            return 0, f"cannot {doing}{what}: {error.strerror}"[:4096]
        except (OperationRefused, LookupError, TypeError, ValueError) as error:
            return 0, f"cannot {doing}: {error}"[:4096]
        finally:
            if self._has_own_uid:
                kernel.set_thread_uids(0, 0, 0)
                if not self._is_reaper:
                    os.setgroups([])  # otherwise the subreaper itself would count as an escaped process
            os.pwrite(self._score, self._own_score, 0)
            os.chdir("/")

    def _enter(self, directory: str) -> None:
        if self._root is None:
            self._root = Root(self._config.workspace)
        self._root.ensure_accessible()
        fd = self._root.open(relative(directory, self._config.workspace), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fchdir(fd)
        finally:
            os.close(fd)

    def _enter_domain(self) -> None:
        # Once: it reaps a tree to its end before it starts another, so no two execs meet in its domain.
        self._has_domain = self._has_domain or kernel.enter_domain()

    def _probe(self, stdio: list[int]) -> int:
        """Fork a process that observes, and before it one that, like another exec's, is outside of this domain."""
        ready, is_ready = os.pipe()
        other_pid = os.fork()
        if other_pid == 0:
            _in_child(lambda: self._be_other_exec(is_ready))
        os.close(is_ready)
        os.read(ready, 1)
        os.close(ready)
        self._enter_domain()
        pid = os.fork()
        if pid == 0:
            _in_child(lambda: self._observe(stdio, other_pid))
        return pid

    def _take_tool_uid(self) -> None:
        if self._has_own_uid:
            uid = self._config.uid
            os.setresuid(uid, uid, uid)
        kernel.show_memory()  # as that of any program a tool starts

    def _be_other_exec(self, is_ready: int) -> None:
        self._take_tool_uid()
        os.close(is_ready)
        signal.pause()  # every signal is blocked; the observer kills it

    def _observe(self, stdio: list[int], other_pid: int) -> None:
        from codesdk.sandbox.runner.execution import probe  # noqa: PLC0415 - once in a sandbox's life

        self._take_tool_uid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._control.close()
        os.write(stdio[1], wire.dump_json(probe.observe(self._runner, other_pid)))

    def _reap_tree(self, leader: int) -> None:
        """Reap until the tree is empty, and report the result."""
        cpu, peak, options = 0.0, 0, _WAIT_ALL
        report: dict[str, Any] = {}
        while True:
            try:
                pid, status, usage = os.wait4(-1, options)
            except ChildProcessError:
                break
            if pid == 0:  # the leader has ended, other processes of its tree have not
                self._report(**report)
                report, options = {}, _WAIT_ALL
                continue
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss)
            if pid == leader:
                report, options = {"leader": status}, _WAIT_ALL | os.WNOHANG
        if not self._is_reaper and not escaped_processes.kill_group(escaped_processes.group_of_exec(self._starts)):
            report["left"] = True
        self._report(empty=True, cpu_s=cpu, max_rss_kb=peak, **report)


def _set_rlimits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, "RLIMIT_" + name.upper(), None)
        if number is None:
            continue  # this Python lacks the limit; the container's ulimits still apply
        _, hard = resource.getrlimit(number)
        # A hard limit can't be raised from inside the sandbox.
        effective = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (effective, effective))
