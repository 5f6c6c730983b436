"""Where nothing may outlive its call, an exec's result waits until the processes that belong to no exec are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import pytest

from codesdk.sandbox.runner.event_loop import EventLoop
from codesdk.sandbox.runner.execution.execs import Execs

KEY = ("call_1", 1)
ENDED = {"subreaper": 7, "leader": 0, "empty": True, "cpu_s": 0.0, "max_rss_kb": 1}


class ForkServer:
    """Keeps the subreaper's end of the control socket: the test plays the subreaper."""

    pid = 1

    def subreaper(self, control) -> None:
        self.control = socket.socket(fileno=os.dup(control.fileno()))


class Runner:
    """A runner's execs, and the signals that they ask for."""

    def __init__(self, *, kills_orphans: bool) -> None:
        self.asked: list[tuple[int, int]] = []
        self.sent: list = []
        self.loop, self.fork_server = EventLoop(), ForkServer()
        self.execs = Execs(self.loop, self.fork_server, self._kill, 1 << 20, os.getuid(), kills_orphans=kills_orphans)

    def _kill(self, subreaper, number, done) -> None:
        self.asked.append((subreaper, number))
        self.sent.append(done)

    def run_to_its_end(self):
        """Start an exec, and report that its tree has ended."""
        request = {"argv": ["true"], "env": {}, "timeout_s": 60.0, "grace_s": 1.0}
        made = self.execs.start(KEY, request, b"", 1 << 16)
        with self.fork_server.control as control:
            _, fds, _, _ = socket.recv_fds(control, 1 << 16, 8)
            for fd in fds:
                os.close(fd)
            control.sendall(json.dumps(ENDED).encode() + b"\n")
            for _ in range(3):
                self.loop.run_once(time.monotonic() + 0.1)
        return made

    def close(self) -> None:
        for handle in self.execs._free:
            handle.dismiss()


@pytest.fixture
def make_runner():
    made = []

    def make(**more):
        made.append(Runner(**more))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


def test_a_result_waits_for_the_kill_of_what_belongs_to_no_exec(make_runner):
    runner = make_runner(kills_orphans=True)
    made = runner.run_to_its_end()
    assert runner.asked == [(0, signal.SIGKILL)]
    assert made.result is None
    runner.sent.pop()()
    assert made.result["exit_code"] == 0


def test_with_background_processes_nothing_else_is_killed(make_runner):
    runner = make_runner(kills_orphans=False)
    assert runner.run_to_its_end().result["exit_code"] == 0
    assert runner.asked == []
