"""The shim: a small process that outlives the worker, starts the runner, holds its pipes and listens for workers.

It does what a container engine's shim does for a container. It runs unconfined and doesn't parse what it forwards:
worker and runner decide between them who may command the runner (HELLO, nonce, generation).

Run as `python -P -m codesdk.sandbox.local.shim DIRECTORY`. That command returns once the sandbox runs, and leaves a
detached process. Standard library only, to stay small: every sandbox has one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from codesdk.sandbox.local import processes, seccomp
from codesdk.sandbox.runner.execution import process_tree

READY = b"ready\n"
INFO_S = 20.0
_READ_BYTES = 64 * 1024
_STDERR_BYTES = 4096
_END_S = 5.0
_CREDENTIALS = struct.Struct("=iII")
_RUNNER_CAPABILITIES = (0, 5, 6, 7)  # CHOWN, KILL, SETGID, SETUID: see `spec.CAPABILITIES`
_LAST_CAPABILITY = 63
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_FILTER = 24, 38, 22, 2
_PR_SET_CHILD_SUBREAPER = 36


class StartFailed(Exception):
    """The sandbox didn't start; the message has the reason."""


def main(directory: str) -> int:
    """Start a sandbox from its directory. Returns 0 once it runs; otherwise the reason is on stderr."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            report = pipe.read()
        if report == READY:
            return 0
        sys.stderr.write(report.decode("utf-8", "replace") or "the shim ended without output")
        return 1
    os.close(read_end)
    code = 1
    try:
        code = _run_detached(Path(directory), write_end)
    finally:
        os._exit(code)


def _run_detached(directory: Path, write_end: int) -> int:
    os.setsid()
    os.umask(0o077)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for kind in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # The shim ends with its runner. A handler instead of SIG_IGN, which tools would inherit.
        signal.signal(kind, lambda *_: None)
    try:
        shim = Shim(directory)
    except (StartFailed, OSError, ValueError) as error:
        os.write(write_end, str(error).encode())
        return 1
    os.write(write_end, READY)
    os.close(write_end)
    shim.run()
    return 0


def _libc_prctl(option: int, first: int, second: Any = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def _drop_privileges(*, filtered: bool) -> None:
    """Drop privileges in a child without bubblewrap, before it becomes the runner; bubblewrap would do the same."""
    _libc_prctl(_PR_SET_NO_NEW_PRIVS, 1, ctypes.c_ulong(0))
    if os.geteuid() == 0:
        for number in range(_LAST_CAPABILITY + 1):
            if number not in _RUNNER_CAPABILITIES:
                with contextlib.suppress(OSError):  # EINVAL: this kernel has no such capability
                    _libc_prctl(_PR_CAPBSET_DROP, number, ctypes.c_ulong(0))
    if filtered:
        steps = seccomp.program()
        _libc_prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(_Filter(len(steps) // 8, steps)))


class Shim:
    """Runs one sandbox's runner."""

    def __init__(self, directory: Path) -> None:
        """Listen, start the runner, and record the processes to kill.

        Raises:
            StartFailed: bubblewrap or the runner didn't start.
            OSError: a system call failed.
        """
        self._directory = directory
        self._launch: dict[str, Any] = json.loads((directory / "launch.json").read_text("utf-8"))
        _libc_prctl(_PR_SET_CHILD_SUBREAPER, 1, ctypes.c_ulong(0))
        self._listener = self._listen()
        # Record first. A crash before the next record closes the runner's stdin, which ends it.
        self._record()
        self._runner = self._start()
        self._peer: socket.socket | None = None
        self._to_runner = b""
        self._to_peer = b""
        self._stderr_tail = b""

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        here = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Via the descriptor: the data directory's path may exceed the length limit of socket paths.
            listener.bind(f"/proc/self/fd/{here}/link")
        finally:
            os.close(here)
        listener.listen(4)
        listener.setblocking(False)
        return listener

    def _record(self, **more: Any) -> None:
        mine = processes.identity(os.getpid())
        fresh = self._directory / ".porter.json"
        fresh.write_text(json.dumps({"boot": processes.boot_id(), "porter": mine, **more}), "utf-8")
        fresh.rename(self._directory / "porter.json")

    def _start(self) -> subprocess.Popen[bytes]:
        info, info_theirs = os.pipe()
        rules, rules_write = os.pipe()
        if self._launch["seccomp"]:
            os.write(rules_write, seccomp.program())
        os.close(rules_write)
        names = {"@info": str(info_theirs), "@seccomp": str(rules)}
        isolated, filtered = self._launch["isolated"], self._launch["seccomp"]

        def prepare_child() -> None:
            for procs_file in self._launch["cgroups"]:
                with open(procs_file, "w", encoding="ascii") as file:  # noqa: PTH123 - the shim stays small
                    file.write(str(os.getpid()))
            if not isolated:
                _drop_privileges(filtered=filtered)

        runner = subprocess.Popen(
            [names.get(part, part) for part in self._launch["argv"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._launch["env"],
            cwd="/",
            umask=0o022,
            start_new_session=True,
            pass_fds=[info_theirs, rules] if isolated else [],
            preexec_fn=prepare_child,  # noqa: PLW1509 - no threads here
        )
        os.close(info_theirs)
        os.close(rules)
        outer = processes.identity(runner.pid)
        inner = self._inner(info, runner) if isolated else None
        os.close(info)
        self._record(runner=outer, inner=inner)
        return runner

    def _inner(self, info: int, runner: subprocess.Popen[bytes]) -> processes.Identity | None:
        """Return process 1 of the PID namespace; the namespace ends with it."""
        poll = select.poll()
        poll.register(info, select.POLLIN)
        text = b""
        while not text.rstrip().endswith(b"}"):
            part = os.read(info, _READ_BYTES) if poll.poll(INFO_S * 1000) else b""
            if not part:
                runner.kill()
                _, stderr = runner.communicate()
                raise StartFailed(stderr.decode("utf-8", "replace").strip() or "bubblewrap did not report its child")
            text += part
        return processes.identity(int(json.loads(text)["child-pid"]))

    # -- carrying -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Forward bytes until the runner ends; then kill its remaining processes and record how it ended."""
        stdin, stdout, stderr = self._pipes()
        os.set_blocking(stdin, False)
        while stdout >= 0:
            ready = dict(self._wait(stdin, stdout, stderr))
            if self._listener.fileno() in ready:
                self._accept()
            if self._peer is not None and (events := ready.get(self._peer.fileno(), 0)):
                self._serve_peer(events)
            if stdin in ready or self._to_runner:
                self._write_stdin(stdin)
            if stderr in ready:
                stderr = self._read_stderr(stderr)
            if stdout in ready:
                data = os.read(stdout, _READ_BYTES)
                if not data:
                    break
                # Discard output without a worker: the runner keeps what matters and starts over with the next HELLO.
                self._to_peer += data if self._peer is not None else b""
            if self._to_peer:
                self._send_to_worker()
        self._end(stderr)

    def _pipes(self) -> tuple[int, int, int]:
        pipes = (self._runner.stdin, self._runner.stdout, self._runner.stderr)
        stdin, stdout, stderr = (pipe.fileno() for pipe in pipes if pipe is not None)
        return stdin, stdout, stderr

    def _wait(self, stdin: int, stdout: int, stderr: int) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if stderr >= 0:
            poll.register(stderr, select.POLLIN)
        if self._to_runner:
            poll.register(stdin, select.POLLOUT)
        if not self._to_peer:
            poll.register(stdout, select.POLLIN)
        if self._peer is not None:
            wanted = (select.POLLOUT if self._to_peer else 0) | (0 if self._to_runner else select.POLLIN)
            poll.register(self._peer, wanted)
        return poll.poll()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return  # it disconnected before the accept
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != os.getuid():
            peer.close()  # defence in depth, in case the data directory's mode lets other users in
            return
        self._disconnect()
        peer.setblocking(False)
        self._peer = peer

    def _disconnect(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None
        self._to_peer = b""
        self._to_runner = b""  # may drop half a frame; the padding before the next HELLO handles that

    def _serve_peer(self, events: int) -> None:
        if self._peer is None or not events & (select.POLLIN | select.POLLHUP | select.POLLERR) or self._to_runner:
            if events & (select.POLLHUP | select.POLLERR):
                self._disconnect()
            return
        try:
            data = self._peer.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._to_runner = data
        else:
            self._disconnect()

    def _write_stdin(self, stdin: int) -> None:
        try:
            while self._to_runner:
                self._to_runner = self._to_runner[os.write(stdin, self._to_runner) :]
        except BlockingIOError:
            return
        except OSError:
            self._to_runner = b""  # the runner is ending; its stdout reaches EOF next

    def _send_to_worker(self) -> None:
        if self._peer is None:
            self._to_peer = b""
            return
        try:
            while self._to_peer:
                self._to_peer = self._to_peer[self._peer.send(self._to_peer) :]
        except BlockingIOError:
            return
        except OSError:
            self._disconnect()

    def _read_stderr(self, stderr: int) -> int:
        data = os.read(stderr, _READ_BYTES)
        if not data:
            return -1
        self._stderr_tail = (self._stderr_tail + data)[-_STDERR_BYTES:]
        (self._directory / "said").write_bytes(self._stderr_tail)
        return stderr

    def _end(self, stderr: int) -> None:
        # Without a PID namespace, a killed runner's tools survive and become children of this process.
        processes.kill_all(lambda: process_tree.descendants(os.getpid(), process_tree.parents()), _END_S)
        code = self._runner.wait()
        poll = select.poll()
        if stderr >= 0:
            poll.register(stderr, select.POLLIN)
            while stderr >= 0 and poll.poll(0):
                stderr = self._read_stderr(stderr)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        fresh = self._directory / ".ended"
        fresh.write_text(f"its runner ended with {how}", "utf-8")
        fresh.rename(self._directory / "ended")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
