"""Everything that belongs to an exec ends with it; other execs continue."""

from __future__ import annotations

import threading
import time

import pytest

from codesdk.sandbox.port import ExitKind
from sandboxes import DEADLINE_S, alive, python, request, run

pytestmark = pytest.mark.engine

ESCAPES = {
    "a_background_child": "sleep 900.{n} & sleep 60",
    "a_child_of_another_session": "setsid sleep 900.{n} & sleep 60",
    "a_double_forked_child": "(setsid sh -c 'sleep 900.{n} &' &) ; sleep 60",
    "a_child_that_ignores_term": "(trap '' TERM HUP INT; sleep 900.{n}; sleep 900.{n}) & trap '' TERM; sleep 60; sleep 60",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_timeout_ends_the_whole_tree(sandbox, escape):
    marker = f"900.{list(ESCAPES).index(escape)}1"
    script = ESCAPES[escape].format(n=marker.partition(".")[2])
    ran = run(sandbox, "sh", "-c", script, timeout_s=0.3)
    assert ran.result.kind is ExitKind.TIMED_OUT
    assert not alive(sandbox, marker)


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_cancel_ends_the_whole_tree_and_is_confirmed_after_that(sandbox, escape):
    marker = f"900.{list(ESCAPES).index(escape)}2"
    asked = request("sh", "-c", "echo begun; " + ESCAPES[escape].format(n=marker.partition(".")[2]))
    begun, found = threading.Event(), []
    thread = threading.Thread(target=lambda: found.append(sandbox.exec(asked, lambda _: begun.set())))
    thread.start()
    assert begun.wait(DEADLINE_S)
    time.sleep(0.1)  # let the shell get to its children
    assert sandbox.cancel(asked.call, asked.attempt)
    assert not alive(sandbox, marker)
    thread.join(DEADLINE_S)
    assert found[0].kind is ExitKind.CANCELLED


@pytest.mark.parametrize("escape", ["setsid sleep 900.3 &", "(setsid sh -c 'sleep 900.3 &' &)"])
def test_an_exec_ends_when_its_leader_does_and_leaves_nothing(sandbox, escape):
    started = time.monotonic()
    ran = run(sandbox, "sh", "-c", f"{escape}\necho done")
    assert (ran.result.kind, ran.result.exit_code, ran.stdout) == (ExitKind.EXITED, 0, b"done\n")
    assert time.monotonic() - started < 60  # the child holds stdout, and nobody waits for it
    assert not alive(sandbox, "900.3")


def test_the_trees_of_other_execs_live_on(sandbox):
    bystander = request("python3", "-c", "import time; print('up', flush=True); time.sleep(1.5); print('whole')")
    up, output, found = threading.Event(), bytearray(), []

    def collect(chunk) -> None:
        output.extend(chunk.data)
        up.set()

    thread = threading.Thread(target=lambda: found.append(sandbox.exec(bystander, collect)))
    thread.start()
    assert up.wait(DEADLINE_S)
    for _ in range(5):
        assert run(sandbox, "sh", "-c", "setsid sleep 60 & sleep 60", timeout_s=0.05).result.kind is ExitKind.TIMED_OUT
    thread.join(DEADLINE_S)
    assert (found[0].exit_code, bytes(output)) == (0, b"up\nwhole\n")


def test_term_comes_before_kill(sandbox):
    ran = run(sandbox, "sh", "-c", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done", timeout_s=0.3)
    assert (ran.result.kind, ran.result.exit_code, ran.stdout) == (ExitKind.TIMED_OUT, 5, b"up\nbye\n")


def test_a_process_that_ends_by_a_signal_of_its_own_is_no_timeout(sandbox):
    ran = run(sandbox, "sh", "-c", "kill -SEGV $$")
    assert (ran.result.kind, ran.result.signal) == (ExitKind.SIGNALED, 11)


def test_exit_code_137_alone_is_no_kill(sandbox):
    ran = run(sandbox, "sh", "-c", "exit 137")
    assert (ran.result.kind, ran.result.exit_code) == (ExitKind.EXITED, 137)


def test_kill_by_a_tool_itself_is_a_signal_and_not_out_of_memory(sandbox):
    ran = run(sandbox, "sh", "-c", "kill -KILL $$")
    assert (ran.result.kind, ran.result.signal) == (ExitKind.SIGNALED, 9)


def test_out_of_memory_is_told_by_the_kernels_counter(open_sandbox):
    sandbox = open_sandbox(memory_bytes=96 * 1024 * 1024)
    ran = python(sandbox, "x = bytearray(400 << 20)")
    assert ran.result.kind is ExitKind.OOM_KILLED
    assert ran.result.oom_kills >= 1
    child = run(sandbox, "sh", "-c", "python3 -c 'x = bytearray(400 << 20)'; exit 4")
    assert (child.result.kind, child.result.exit_code) == (ExitKind.OOM_KILLED, 4)
    assert run(sandbox, "true").result.kind is ExitKind.EXITED


def test_cpu_seconds_of_children_are_counted(sandbox):
    burn = "python3 -c 'import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass'"
    assert run(sandbox, "sh", "-c", f"{burn} & wait").result.cpu_s >= 0.3


def test_twenty_execs_run_at_once(sandbox):
    results = []

    def work(number: int) -> None:
        results.append(run(sandbox, "sh", "-c", f"sleep 0.2; echo {number}").stdout)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(map(int, results)) == list(range(20))
