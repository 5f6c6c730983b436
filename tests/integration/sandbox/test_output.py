"""Output is complete, in order, and counted, regardless of connections."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time

import pytest

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.port.faults import SandboxGone
from sandboxes import DEADLINE_S, python, request, run

pytestmark = pytest.mark.engine


def test_sixteen_megabytes_come_back_byte_for_byte(sandbox):
    program = (
        "import hashlib, sys, random\n"
        "data = random.Random(1).randbytes(16 << 20)\n"
        "sys.stdout.buffer.write(data)\n"
        "sys.stderr.write(hashlib.sha256(data).hexdigest())"
    )
    ran = python(sandbox, program)
    assert len(ran.stdout) == 16 << 20
    assert hashlib.sha256(ran.stdout).hexdigest().encode() == ran.stderr


def test_fifty_megabytes_end_with_what_was_dropped_counted(sandbox):
    ran = run(sandbox, "head", "-c", "50000000", "/dev/zero")
    assert ran.result.stdout.bytes == 50_000_000
    assert len(ran.stdout) == ran.result.stdout.bytes - ran.result.stdout.dropped == 16 << 20


def test_multi_byte_characters_split_anywhere_arrive_as_bytes(sandbox):
    program = (
        "import os\n"
        "text = ('äöü漢字🙂' * 2000).encode()\n"
        "for start in range(0, len(text), 7):\n"
        "    os.write(1, text[start:start + 7]); os.write(2, b'.') if start % 70 == 0 else None"
    )
    ran = python(sandbox, program)
    assert ran.stdout == ("äöü漢字🙂" * 2000).encode()
    assert set(ran.stderr) == {ord(".")}


def test_ten_megabytes_of_stdin_arrive(sandbox):
    data = hashlib.sha256(b"x").digest() * 320_000
    ran = run(sandbox, "sha256sum", stdin=data)
    assert ran.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_stdin_that_nobody_reads_does_no_harm(sandbox):
    assert run(sandbox, "true", stdin=bytes(5_000_000)).result.exit_code == 0


def test_a_megabyte_of_arguments_arrives(sandbox):
    words = ["x" * 100_000] * 10
    assert run(sandbox, "sh", "-c", "printf '%s' \"$@\" | wc -c", "sh", *words).stdout.strip() == b"1000000"


def test_output_comes_while_the_exec_runs(sandbox):
    seen = []
    started = time.monotonic()
    asked = request("sh", "-c", "echo one; sleep 0.6; echo two")
    sandbox.exec(asked, lambda chunk: seen.append((chunk.data, time.monotonic() - started)))
    assert [data for data, _ in seen] == [b"one\n", b"two\n"]
    assert seen[0][1] < 0.4


def test_a_lost_connection_loses_no_output(sandbox):
    """The engine's stream is cut again and again while an exec talks."""
    program = "import time\nfor n in range(300):\n    print(n, flush=True); time.sleep(0.004)"
    asked = request("python3", "-u", "-c", program)
    output, cut = bytearray(), []

    def collect(chunk) -> None:
        output.extend(chunk.data)
        if len(output) > 150 * (len(cut) + 1):
            cut.append(len(output))
            sandbox._client.latest.close()

    result = sandbox.exec(asked, collect)
    assert result.exit_code == 0
    assert len(cut) > 3
    assert output.decode().split() == [str(number) for number in range(300)]


def test_a_worker_that_comes_back_gets_the_output_of_the_time_without_it(sandboxes, make_spec):
    asked = make_spec()
    first = sandboxes.open(asked)
    slow = request("sh", "-c", "echo begun; sleep 0.5; echo meanwhile; sleep 0.3; echo end; exit 7")
    begun = threading.Event()

    def abandoned() -> None:
        with pytest.raises(SandboxGone):
            first.exec(slow, lambda _: begun.set())

    thread = threading.Thread(target=abandoned)
    thread.start()
    assert begun.wait(DEADLINE_S)
    first.close()
    thread.join(DEADLINE_S)
    time.sleep(0.6)
    second = sandboxes.reattach(asked.owner, 2)
    output = bytearray()
    result = second.exec(slow, lambda chunk: output.extend(chunk.data))
    assert (result.kind, result.exit_code, bytes(output)) == (ExitKind.EXITED, 7, b"begun\nmeanwhile\nend\n")
    again = bytearray()
    assert second.exec(slow, lambda chunk: again.extend(chunk.data)) == result
    assert again == output
    sandboxes.destroy(asked.owner)


WORKER = """
import os, sys
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port import ExecRequest, SandboxSpec
spec = SandboxSpec.model_validate_json(sys.argv[2])
sandbox = DockerSandboxes(spec.instance, Engine(sys.argv[1])).open(spec)
sandbox.exec(ExecRequest.model_validate_json(sys.argv[3]), lambda _: os.kill(os.getpid(), 9))
"""


def test_a_worker_killed_in_mid_call_is_followed_by_one_that_gets_the_whole_result(engine, sandboxes, make_spec):
    asked = make_spec()
    slow = request("sh", "-c", "echo once >> runs; echo begun; sleep 0.5; echo end; exit 3")
    arguments = [engine.host, asked.model_dump_json(), slow.model_dump_json()]
    died = subprocess.run([sys.executable, "-c", WORKER, *arguments], check=False, timeout=DEADLINE_S)
    assert died.returncode == -9
    second = sandboxes.reattach(asked.owner, 2)
    output = bytearray()
    result = second.exec(slow, lambda chunk: output.extend(chunk.data))
    assert (result.exit_code, bytes(output)) == (3, b"begun\nend\n")
    assert second.files.read("runs").data == b"once\n"
    sandboxes.destroy(asked.owner)


def test_two_callers_of_one_exec_get_the_same_answer_and_it_runs_once(sandbox):
    slow = request("sh", "-c", "echo once >> counted; sleep 0.3; echo end")
    results = []

    def work() -> None:
        output = bytearray()
        results.append((sandbox.exec(slow, lambda chunk: output.extend(chunk.data)), bytes(output)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(results) == 3
    assert {output for _, output in results} == {b"end\n"}
    assert sandbox.files.read("counted").data == b"once\n"


def test_half_a_frame_of_a_dead_worker_harms_nobody(sandboxes, make_spec):
    asked = make_spec()
    first = sandboxes.open(asked)
    frame = bytes.fromhex("c5010000000100010000") + b"half of a payload"
    first._client.connection()._stream.send(frame)
    first.close()
    second = sandboxes.reattach(asked.owner, 2)
    assert run(second, "echo", "well").stdout == b"well\n"
    sandboxes.destroy(asked.owner)


def test_an_idle_sandbox_holds_no_connection(sandboxes, make_spec):
    made = sandboxes.open(make_spec())
    made._client.latest._idle_s = 0.1
    link = made._client.latest
    deadline = time.monotonic() + DEADLINE_S
    while not link.lost and time.monotonic() < deadline:
        time.sleep(0.05)
    assert link.reason == "idle"
    assert run(made, "echo", "again").stdout == b"again\n"
    sandboxes.destroy(made.owner)
