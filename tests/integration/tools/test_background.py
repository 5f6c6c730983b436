"""process.start, list, read and signal on a real sandbox."""

from __future__ import annotations

import time

import pytest

from codesdk.registry import Registry
from sandboxes import DEADLINE_S, alive, request
from stage import REPOSITORY
from tool_bench import bench, use

pytestmark = pytest.mark.engine
REGISTRY = Registry.load(REPOSITORY / "tool-registry")


def call(sandbox, name, **given):
    result = use(REGISTRY.resolve(name), given, bench(sandbox))
    assert not result.is_error, result
    return result.structured


def read_until(sandbox, process, wanted, stream="stdout"):
    """What it says, piece by piece as an agent reads it, until it has said that."""
    said, offset, deadline = "", 0, time.monotonic() + DEADLINE_S
    while wanted not in said:
        assert time.monotonic() < deadline, said
        found = call(sandbox, "process.read", process=process, stream=stream, offset=offset, wait_s=5)
        said, offset = said + found["text"], found["next_offset"]
    return said


def test_a_server_serves_later_commands_until_a_signal_ends_it(sandbox):
    example = REGISTRY.resolve("process.start").examples[0]
    server = call(sandbox, "process.start", **example.input)["process"]
    read_until(sandbox, server, "Serving HTTP")
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/').status)"
    assert call(sandbox, "workspace.exec", argv=["python3", "-c", fetch])["stdout"] == "200\n"
    read_until(sandbox, server, "GET / HTTP", stream="stderr")
    assert server in [each["process"] for each in call(sandbox, "process.list")["processes"] if each["running"]]
    assert call(sandbox, "process.signal", process=server, signal="TERM")["sent"]
    ended = call(sandbox, "process.read", process=server, offset=2**30, wait_s=20)
    assert (ended["running"], ended["signal"], ended["over"]) == (False, 15, True)


def test_a_server_in_python_is_heard_although_its_output_is_a_pipe(sandbox):
    program = "import time; print('Listening'); time.sleep(907.3)"
    process = call(sandbox, "process.start", argv=["python3", "-c", program])["process"]
    read_until(sandbox, process, "Listening")
    call(sandbox, "process.signal", process=process, signal="KILL")


@pytest.mark.parametrize("line", ["exec python3 fill.py", "python3 fill.py; exit $?"])
def test_a_bus_error_says_how_much_shared_memory_there_is(sandbox, line):
    program = "import mmap, os\nfile = os.open('/dev/shm/a', os.O_RDWR | os.O_CREAT)\nos.ftruncate(file, 1 << 28)\n"
    filled = program + "memory = mmap.mmap(file, 1 << 28)\nfor at in range(0, 1 << 28, 4096): memory[at] = 1\n"
    call(sandbox, "workspace.write", path="fill.py", content=filled)
    result = use(REGISTRY.resolve("workspace.exec"), {"command": line}, bench(sandbox))
    sandbox.exec(request("rm", "/dev/shm/a"), lambda _: None)
    assert result.is_error
    assert "a bus error, as when /dev/shm is full: it holds 64 MiB" in result.text


def test_a_signal_reaches_all_that_a_line_has_started(sandbox):
    line = "sleep 907.1 & (setsid sleep 907.2 &) ; echo up; wait"
    process = call(sandbox, "process.start", command=line)["process"]
    read_until(sandbox, process, "up")
    assert alive(sandbox, "907.1")
    call(sandbox, "process.signal", process=process, signal="KILL")
    ended = call(sandbox, "process.read", process=process, offset=2**30, wait_s=20)
    assert (ended["running"], ended["outcome"]) == (False, "signaled")
    assert not alive(sandbox, "907.1")
    assert not alive(sandbox, "907.2")


def test_a_command_that_is_not_there_is_told_at_once(sandbox):
    result = use(REGISTRY.resolve("process.start"), {"argv": ["no-such-command"]}, bench(sandbox))
    assert (result.is_error, result.code) == (True, "SPAWN_FAILED")


def test_its_time_ends_a_process_with_all_that_it_started(sandbox):
    process = call(sandbox, "process.start", command="sleep 908.1 & wait", timeout_s=1)["process"]
    ended = call(sandbox, "process.read", process=process, wait_s=20)
    assert (ended["running"], ended["outcome"]) == (False, "timed_out")
    assert not alive(sandbox, "908.1")
