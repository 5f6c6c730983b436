"""A watch of the workspace with programs that try to flood it, or to lead it outside."""

from __future__ import annotations

import time

import pytest

from codesdk.sandbox.port import ChangeKind, WatchMethod
from sandboxes import DEADLINE_S, python, request, run

pytestmark = pytest.mark.engine


def read_until(sandbox, watch, met, after=0):
    """Everything that is told until `met` says so."""
    told, deadline = [], time.monotonic() + DEADLINE_S
    while not met(told):
        assert time.monotonic() < deadline, told[-20:]
        part = sandbox.files.changes(watch.id, after, wait_s=0.5)
        after = part.next
        told += part.changes
    return told, after


def paths(told, kind=ChangeKind.CREATED):
    return {change.path for change in told if change.kind is kind}


def test_a_program_that_takes_all_instances_of_its_uid_gets_a_watch_that_looks(open_sandbox):
    """The kernel's limits are counted by uid, and the tool's uid is its own: no other sandbox is touched."""
    box = open_sandbox()
    program = """
import ctypes, sys, time
libc, count = ctypes.CDLL(None), 0
while libc.inotify_init1(0) >= 0: count += 1
print(count, flush=True); time.sleep(60)
"""
    box.processes.start(request("python3", "-c", program, call="greedy"))
    assert box.processes.output("greedy", 1, "stdout", 0, wait_s=10).data.strip().isdigit()
    watch = box.files.watch()
    assert watch.method is WatchMethod.POLLING
    run(box, "touch", "seen")
    read_until(box, watch, lambda told: "seen" in paths(told))
    other = open_sandbox()
    assert other.files.watch().method is WatchMethod.INOTIFY


def test_a_directory_that_was_closed_to_the_tool_is_told_as_unknown_and_nothing_else_is_lost(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "mkdir -p closed open; chmod 000 closed")
    watch = box.files.watch()
    run(box, "touch", "open/seen")
    told, _ = read_until(box, watch, lambda told: "open/seen" in paths(told))
    assert paths(told, ChangeKind.OVERFLOW) == {"closed"}


def test_a_storm_of_files_from_a_program_is_told_whole_or_marked_and_the_sandbox_answers(open_sandbox):
    box = open_sandbox()
    watch = box.files.watch()
    program = """
import os
for number in range(20000):
    name = f"storm-{number}"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.rename(name, name + "-moved"); os.unlink(name + "-moved")
"""
    box.processes.start(request("python3", "-c", program, call="storm"))
    began = time.monotonic()
    assert run(box, "true").result.exit_code == 0
    assert time.monotonic() - began < 30
    box.processes.output("storm", 1, "stdout", 0, wait_s=20)
    run(box, "touch", "after")
    told, _ = read_until(box, watch, lambda told: "after" in paths(told))
    gone = paths(told, ChangeKind.DELETED)
    assert ChangeKind.OVERFLOW in {change.kind for change in told} or len(gone) == 20_000


def test_directories_that_are_swapped_for_links_lead_the_watch_nowhere(open_sandbox):
    box = open_sandbox()
    program = """
import os, time
os.makedirs("/tmp/outside/secret", exist_ok=True)
end = time.time() + 3
print("swapping", flush=True)
while time.time() < end:
    os.mkdir("place"); os.rmdir("place"); os.symlink("/tmp/outside", "place")
    open("/tmp/outside/secret/file", "w").close(); os.unlink("place")
"""
    watch = box.files.watch()
    ran = python(box, program)
    assert ran.result.exit_code == 0, ran.stderr
    run(box, "touch", "after")
    told, _ = read_until(box, watch, lambda told: "after" in paths(told))
    assert not any("secret" in change.path for change in told)


def test_names_that_are_no_utf_8_deep_paths_and_long_names_are_told(open_sandbox):
    box = open_sandbox()
    watch = box.files.watch()
    program = """
import os
os.close(os.open(b"bad-\\xff", os.O_CREAT)); os.close(os.open("n" * 255, os.O_CREAT))
for level in range(60): os.mkdir("d" * 100); os.chdir("d" * 100)
os.close(os.open("bottom", os.O_CREAT))
"""
    assert python(box, program).result.exit_code == 0
    told, after = read_until(box, watch, lambda told: "bad-\\xff" in paths(told) and paths(told, ChangeKind.OVERFLOW))
    assert "n" * 255 in paths(told)
    # A path that no system call takes cannot be watched: what is beneath is said to be unknown.
    (unseen,) = {path for path in paths(told, ChangeKind.OVERFLOW) if path != "."} or {"."}
    assert unseen == "." or len(unseen) > 3900
    run(box, "touch", "after")
    read_until(box, watch, lambda told: "after" in paths(told), after)
