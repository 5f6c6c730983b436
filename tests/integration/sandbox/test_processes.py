"""Execs other than one blocking call, with real programs: background, terminals, incremental stdin."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest

from codesdk.sandbox.port import ExitKind, Pty
from sandboxes import DEADLINE_S, alive, request, run

pytestmark = pytest.mark.engine


def said_until(sandbox, asked, wanted: bytes, start: int = 0) -> bytes:
    """Output from `start` on until it holds `wanted`."""
    deadline, found = time.monotonic() + DEADLINE_S, b""
    while wanted not in found:
        assert time.monotonic() < deadline, found
        found += sandbox.processes.output(asked.call, 1, "stdout", start + len(found), wait_s=2).data
    return found


def test_a_server_in_the_background_serves_later_execs_and_dies_with_its_stop(sandbox):
    asked = request("python3", "-u", "-m", "http.server", "8077", "--bind", "127.0.0.1", timeout_s=600)
    sandbox.processes.start(asked)
    said_until(sandbox, asked, b"Serving")
    program = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8077/').status)"
    assert run(sandbox, "python3", "-c", program).stdout == b"200\n"
    assert sandbox.cancel(asked.call, 1)
    assert run(sandbox, "python3", "-c", program).result.exit_code == 1


def test_leftovers_of_a_foreground_exec_die_while_a_background_exec_lives_on(sandbox):
    kept = request("sh", "-c", "sleep 901.1 & wait")
    sandbox.processes.start(kept)
    run(sandbox, "sh", "-c", "setsid sleep 901.2 & true")
    assert not alive(sandbox, "901.2")
    assert alive(sandbox, "901.1")
    sandbox.cancel(kept.call, 1)
    assert not alive(sandbox, "901.1")


def test_the_beginning_and_the_end_of_long_output_are_kept_and_the_gap_is_exact(sandbox):
    program = "import os\nfor n in range(200_000): os.write(1, b'%07d\\n' % n)"
    ran = run(sandbox, "python3", "-c", program, keep_bytes=8000)
    assert ran.stdout == b"".join(b"%07d\n" % n for n in [*range(500), *range(199_500, 200_000)])
    assert (ran.result.stdout.dropped, ran.result.stdout.gap) == (8 * 199_000, 4000)
    again = run(sandbox, "python3", "-c", program, keep_bytes=8000, call=ran.call)
    assert again.stdout == ran.stdout


def test_a_signal_can_be_caught_by_the_program(sandbox):
    asked = request("sh", "-c", "trap 'echo hup' HUP; echo up; while :; do sleep 0.05; done")
    sandbox.processes.start(asked)
    said_until(sandbox, asked, b"up\n")
    assert sandbox.processes.signal(asked.call, 1, 1)
    said_until(sandbox, asked, b"hup\n")
    assert sandbox.cancel(asked.call, 1)


def test_fifty_megabytes_of_stdin_go_in_bit_by_bit(sandbox):
    piece = hashlib.sha256(b"x").digest() * 32_768
    asked = request("sha256sum", stdin_open=True)
    found = []
    thread = threading.Thread(target=lambda: found.append(run(sandbox, *asked.argv, call=asked.call, stdin_open=True)))
    thread.start()
    while sandbox.processes.write(asked.call, 1, b"") is None:
        time.sleep(0.01)
    whole = hashlib.sha256()
    for count in range(50):
        sandbox.processes.write(asked.call, 1, piece, end=count == 49)
        whole.update(piece)
    thread.join(DEADLINE_S)
    assert found[0].stdout.split()[0].decode() == whole.hexdigest()


def test_stdin_that_is_not_read_is_taken_as_far_as_there_is_room(sandbox):
    asked = request("sleep", "30", stdin_open=True)
    sandbox.processes.start(asked)
    taken = sandbox.processes.write(asked.call, 1, bytes(8 << 20), wait_s=0.2)
    assert 1 << 20 <= taken.offset < 4 << 20
    assert taken.open
    assert sandbox.cancel(asked.call, 1)


def test_a_terminal_runs_an_interpreter_that_is_typed_to(sandbox):
    asked = request("python3", "-i", pty=Pty(rows=33, cols=101))
    sandbox.processes.start(asked)
    seen = len(said_until(sandbox, asked, b">>> "))
    sandbox.processes.write(asked.call, 1, b"import os; print(6 * 7, os.isatty(0), tuple(os.get_terminal_size()))\n")
    seen += len(said_until(sandbox, asked, b"42 True (101, 33)\r\n>>> ", seen))
    sandbox.processes.resize(asked.call, 1, Pty(rows=40, cols=120))
    sandbox.processes.write(
        asked.call, 1, b"print(tuple(os.get_terminal_size()), os.stat(os.ttyname(0)).st_uid == os.getuid())\n"
    )
    # Up to the prompt: an end that is typed while the interpreter sets its terminal anew is no end to it.
    said_until(sandbox, asked, b"(120, 40) True\r\n>>> ", seen)
    sandbox.processes.write(asked.call, 1, b"", end=True)
    last = sandbox.processes.output(asked.call, 1, "stdout", 1 << 30, wait_s=DEADLINE_S)
    assert last.over
    result = next(item.result for item in sandbox.processes.list() if item.call == asked.call)
    assert (result.kind, result.exit_code) == (ExitKind.EXITED, 0)


def test_a_shell_in_a_terminal_has_job_control_and_dies_with_its_children(sandbox):
    asked = request("bash", "--norc", "-i", pty=Pty())
    sandbox.processes.start(asked)
    sandbox.processes.write(asked.call, 1, b"sleep 902.1 &\nsleep 902.2 & echo job $((40+2))\n")
    seen = said_until(sandbox, asked, b"job 42")
    assert b"no job control" not in seen
    assert alive(sandbox, "902.1")
    assert sandbox.cancel(asked.call, 1)
    assert not alive(sandbox, "902.1")
    assert not alive(sandbox, "902.2")


def test_ctrl_c_interrupts_what_runs_in_a_terminal(sandbox):
    asked = request("sh", "-c", "echo up; sleep 60; echo never", pty=Pty())
    sandbox.processes.start(asked)
    said_until(sandbox, asked, b"up")
    sandbox.processes.write(asked.call, 1, b"\x03")
    assert sandbox.processes.output(asked.call, 1, "stdout", 1 << 30, wait_s=DEADLINE_S).over


def test_twenty_terminals_open_and_close(sandbox):
    for _ in range(20):
        ran = run(sandbox, "sh", "-c", "test -t 1 && echo yes", pty=Pty())
        assert (ran.result.exit_code, ran.stdout) == (0, b"yes\r\n")


def test_a_background_exec_is_found_again_by_the_next_worker(sandboxes, make_spec):
    asked = make_spec()
    first = sandboxes.open(asked)
    slow = request("sh", "-c", "echo begun; sleep 0.5; echo end; sleep 30")
    first.processes.start(slow)
    first.close()
    second = sandboxes.reattach(asked.owner, 2)
    assert said_until(second, slow, b"end\n") == b"begun\nend\n"
    assert [item.call for item in second.processes.list()] == [slow.call]
    sandboxes.destroy(asked.owner)
