"""Our processes that start tools and wait for them: no tool can signal one, not even while it starts another."""

from __future__ import annotations

import pytest

from codesdk.sandbox.port import ExitKind
from sandboxes import request, run

pytestmark = pytest.mark.engine

STORM = """
import os, sys
number = int(sys.argv[1])
os.write(1, b"up\\n")
while True:
    try:
        os.kill(-1, number)  # every process that this one may signal, but itself
    except ProcessLookupError:
        pass
"""
ROUNDS = 40


@pytest.fixture
def storm(open_sandbox):
    """A sandbox in which one tool sends a signal to all that it may, all the time."""
    sandbox = open_sandbox(grace_s=0.2)

    def begin(number: int):
        asked = request("python3", "-c", STORM, str(number), timeout_s=120)
        sandbox.processes.start(asked)
        assert sandbox.processes.output(asked.call, 1, "stdout", 0, wait_s=10).data == b"up\n"
        return sandbox, lambda: sandbox.cancel(asked.call, 1)

    return begin


def test_a_storm_of_kills_ends_tools_and_no_supervisor(storm):
    sandbox, end = storm(9)
    found = [run(sandbox, "true").result for _ in range(ROUNDS)]
    assert {result.kind for result in found} <= {ExitKind.EXITED, ExitKind.SIGNALED}, found
    assert {result.signal for result in found} <= {None, 9}
    assert ExitKind.SIGNALED in {result.kind for result in found}, "the storm did nothing"
    assert not [result.error for result in found if result.error]
    assert end()
    assert run(sandbox, "echo", "well").stdout == b"well\n"


def test_a_storm_of_stops_stops_tools_and_no_supervisor(storm):
    sandbox, end = storm(19)
    found = [run(sandbox, "sleep", "0.05", timeout_s=0.4).result for _ in range(5)]
    assert {result.kind for result in found} <= {ExitKind.EXITED, ExitKind.TIMED_OUT}, found
    assert ExitKind.TIMED_OUT in {result.kind for result in found}, "the storm did nothing"
    assert end()
    assert run(sandbox, "echo", "well").stdout == b"well\n"


def test_execs_that_begin_together_with_a_storm_keep_their_supervisors(open_sandbox):
    sandbox = open_sandbox(grace_s=0.2)
    for _ in range(10):
        alone = request("sleep", "0.2")
        sandbox.processes.start(alone)  # by spawn: nothing else runs
        asked = request("python3", "-c", STORM, "9", timeout_s=60)
        sandbox.processes.start(asked)  # and this at once after it
        found = sandbox.processes.output(alone.call, 1, "stdout", 0, wait_s=10)
        assert found.over
        ended = next(item.result for item in sandbox.processes.list() if item.call == alone.call)
        assert (ended.kind, ended.error) in {(ExitKind.EXITED, ""), (ExitKind.SIGNALED, "")}, ended
        assert sandbox.cancel(asked.call, 1)
        for call in (alone.call, asked.call):
            sandbox.acknowledge(call, 1)
    assert run(sandbox, "echo", "well").stdout == b"well\n"
