"""Snapshots, forks and large files of real workspaces: complete, bounded, with the tools stopped."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.sandbox.port import ExitKind, FileError, FileRefused, FileWrite
from codesdk.sandbox.port.faults import SnapshotFailed
from codesdk.sandbox.port.files import diff_manifests
from sandboxes import DEADLINE_S, python, request, run

pytestmark = pytest.mark.engine


def test_modes_times_and_links_come_over_as_they_were(open_sandbox):
    one, two = open_sandbox(), open_sandbox()
    script = (
        "mkdir -p d/deep; echo x > d/deep/file; chmod 751 d/deep; chmod 440 d/deep/file; ln -s /usr/bin/python3 abs;"
        "ln -s d/deep/file rel; ln -s nowhere broken; ln d/deep/file hard; mkfifo pipe;"
        "touch -d '2001-02-03 04:05:06' d/deep/file d/deep; touch -h -d '2002-02-03' abs"
    )
    assert run(one, "sh", "-c", script).result.exit_code == 0
    assert two.restore(one.snapshot()) == 7
    look = "find . ! -name pipe -printf '%P %y %m %l %T@ %n\\n' | grep -v '^ ' | sort"
    assert run(two, "sh", "-c", look).stdout == run(one, "sh", "-c", look).stdout
    found = diff_manifests(one.files.manifest(), two.files.manifest())
    assert (found.added, found.modified, found.deleted) == ((), (), ("pipe",))


def test_a_snapshot_is_of_one_moment_although_tools_write_on(open_sandbox):
    one, two = open_sandbox(), open_sandbox()
    program = (
        "import os\nn = 0\nwhile True:\n    n += 1\n"
        "    for name in 'ab':\n        open(name + '.new', 'w').write(str(n)); os.rename(name + '.new', name)\n"
        "    print(n, flush=True) if n == 50 else None"
    )
    asked = request("python3", "-c", program)
    one.processes.start(asked)
    assert one.processes.output(asked.call, 1, "stdout", 0, wait_s=DEADLINE_S).data
    pieces = one.snapshot()
    held = [next(pieces)]
    before = one.files.read("a").data
    time.sleep(0.2)
    assert one.files.read("a").data == before
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(run, one, "true")
        time.sleep(0.2)
        assert not waits.done()
        two.restore([*held, *pieces])
        assert waits.result(DEADLINE_S).result.kind is ExitKind.EXITED
    assert abs(int(two.files.read("a").data) - int(two.files.read("b").data)) <= 1
    deadline = time.monotonic() + DEADLINE_S
    while one.files.read("a").data == before:
        assert time.monotonic() < deadline
    assert one.cancel(asked.call, 1)


def test_a_kill_reaches_tools_that_stand_still_and_leaves_the_others_so(open_sandbox):
    one = open_sandbox()
    line = "echo begun; while :; do date +%N > tick; sleep 0.01; done"
    first, second = (request("sh", "-c", line) for _ in range(2))
    for asked in (first, second):
        one.processes.start(asked)
        assert one.processes.output(asked.call, 1, "stdout", 0, wait_s=DEADLINE_S).data
    pieces = one.snapshot()
    next(pieces)
    assert one.cancel(first.call, 1)
    tick = one.files.read("tick").data
    time.sleep(0.2)
    assert one.files.read("tick").data == tick
    pieces.close()
    assert one.cancel(second.call, 1)


def test_a_second_snapshot_at_once_is_refused_and_a_closed_one_lets_the_tools_go_on(open_sandbox):
    one = open_sandbox()
    one.files.write((FileWrite(path="file", content=b"1"),))
    pieces = one.snapshot()
    next(pieces)
    with pytest.raises(SnapshotFailed, match="in progress"):
        next(one.snapshot())
    pieces.close()
    assert run(one, "true").result.exit_code == 0


def test_a_worker_that_is_lost_in_a_snapshot_leaves_no_frozen_sandbox(sandboxes, make_spec):
    asked = make_spec()
    first = sandboxes.open(asked)
    first.files.write((FileWrite(path="file", content=bytes(5 << 20)),))
    pieces = first.snapshot()
    next(pieces)
    second = sandboxes.reattach(asked.owner, 2)
    assert run(second, "true").result.exit_code == 0
    sandboxes.destroy(asked.owner)


def test_a_workspace_larger_than_the_memory_of_its_sandbox_is_forked(open_sandbox):
    one, two = open_sandbox(memory_bytes=64 << 20), open_sandbox(memory_bytes=64 << 20)
    run(one, "sh", "-c", "for n in 1 2 3; do head -c 50000000 /dev/urandom > big$n; done", timeout_s=60)
    assert two.restore(one.snapshot()) == 3
    assert run(two, "sh", "-c", "cat big*|sha256sum").stdout == run(one, "sh", "-c", "cat big*|sha256sum").stdout


def test_two_hundred_megabytes_go_up_and_down_in_a_small_sandbox(open_sandbox):
    sandbox = open_sandbox(memory_bytes=64 << 20)
    piece = hashlib.sha256(b"x").digest() * 32_768
    whole = hashlib.sha256()

    def pieces():
        for _ in range(200):
            whole.update(piece)
            yield piece

    assert sandbox.files.upload("large", pieces()).size == 200 << 20
    back = hashlib.sha256()
    assert sandbox.files.download("large", back.update).size == 200 << 20
    assert back.digest() == whole.digest()


def test_a_file_that_changes_while_it_is_read_is_a_conflict(sandbox):
    sandbox.files.write((FileWrite(path="changing", content=bytes(3 << 20)),))
    pieces = []

    def take(data: bytes) -> None:
        pieces.append(data)
        if len(pieces) == 1:
            run(sandbox, "sh", "-c", "echo more >> changing")

    answer = sandbox.files.download("changing", take)
    assert isinstance(answer, FileRefused)
    assert answer.error is FileError.CONFLICT


def test_a_tree_of_two_thousand_levels_is_deleted(sandbox):
    program = "import os\nos.mkdir('deep'); os.chdir('deep')\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')"
    assert python(sandbox, program).result.exit_code == 0
    assert sandbox.files.delete("deep", recursive=True) == 2001


def test_a_delete_follows_no_symlink_while_tools_swap_directories_for_them(open_sandbox):
    sandbox = open_sandbox()
    run(sandbox, "sh", "-c", "mkdir keep; for n in $(seq 200); do echo $n > keep/$n; done")
    program = (
        "import os\nwhile True:\n    try:\n        os.makedirs('swap/a/b', exist_ok=True); os.rename('swap/a', 'swap/c')\n"
        "        os.symlink('../keep', 'swap/a'); os.unlink('swap/a'); os.rename('swap/c', 'swap/a')\n"
        "    except OSError: pass"
    )
    asked = request("python3", "-c", program)
    sandbox.processes.start(asked)
    for _ in range(40):
        sandbox.files.delete("swap", recursive=True)
    sandbox.cancel(asked.call, 1)
    assert len(sandbox.files.list("keep").entries) == 200


def test_uploads_that_nobody_ends_leave_nothing_for_long(sandbox):
    def broken():
        yield b"x"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.files.upload("halfway", broken())
    assert [entry.path for entry in sandbox.files.list(".").entries if "codesdk-" in entry.path] == []
    assert isinstance(sandbox.files.stat("halfway"), FileRefused)


def test_file_operations_go_on_while_a_manifest_is_made(open_sandbox):
    sandbox = open_sandbox()
    run(sandbox, "sh", "-c", "for n in 1 2 3; do head -c 60000000 /dev/zero > z$n; done", timeout_s=60)
    found = []
    thread = threading.Thread(target=lambda: found.append(sandbox.files.manifest()))
    thread.start()
    started = time.monotonic()
    sandbox.files.stat("z1")
    assert not found or time.monotonic() - started < 2
    thread.join(DEADLINE_S)
    assert [entry.path for entry in found[0].entries] == ["z1", "z2", "z3"]
