from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.runner.execution import escaped_processes, process_tree
from codesdk.sandbox.runner.execution.process_tree import (
    BLOCKED,
    DEAD,
    RUNNING,
    STOPPED,
    descendants,
    parents,
    read_process,
)
from stage import wait_for

HEADLESS = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nprint(flush=True)\nctypes.CDLL(None).pthread_exit(None)"
"""A process whose first thread ends while another runs on."""
TABLE = {10: (1, RUNNING), 11: (10, RUNNING), 12: (11, DEAD), 13: (12, RUNNING), 14: (1, RUNNING), 15: (14, STOPPED)}


def test_descendants_are_all_beneath_without_the_root_and_without_zombies():
    assert sorted(descendants(10, TABLE)) == [11, 13]


def test_a_subtree_can_be_left_out():
    assert sorted(descendants(1, TABLE, excluding=10)) == [14, 15]


@pytest.mark.parametrize(("program", "waits"), [("libc.vfork() or libc.pause()", True), ("libc.pause()", False)])
def test_of_processes_that_cannot_be_interrupted_only_the_caller_of_a_vfork_waits_for_a_child(
    monkeypatch, program, waits
):
    monkeypatch.setitem(process_tree._STATES, b"S", BLOCKED)  # sleeps, and stands for one that waits for a disk
    text = f"import ctypes; libc = ctypes.CDLL(None); {program}"
    with subprocess.Popen([sys.executable, "-c", text], start_new_session=True) as process:
        try:
            call = Path(f"/proc/{process.pid}/syscall")
            numbers = (b"58", b"56", b"220") if waits else (b"34", b"73", b"7")  # pause, or ppoll where there is none
            wait_for(lambda: call.read_bytes().split()[0] in numbers, "its call")
            wait_for(lambda: (read_process(process.pid) or (0, RUNNING))[1] == BLOCKED, "it to wait")
            assert process_tree._waits_for_vfork(process.pid, os.getuid()) is waits
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@given(
    st.dictionaries(
        st.integers(2, 30), st.tuples(st.integers(1, 30), st.sampled_from((DEAD, STOPPED, RUNNING))), max_size=29
    )
)
def test_a_table_with_cycles_ends(table):
    """A scan is no snapshot: a pid may be used again while it is read."""
    found = descendants(1, table)
    assert len(found) == len(set(found))


def test_this_process_is_found_beneath_its_parent():
    assert os.getpid() in descendants(os.getppid(), parents())


def test_a_child_whose_parent_ends_during_the_scan_is_found_below_its_next_parent():
    """The middle process ends after its child was read: the child then belongs to the root."""
    root, middle, child = 1 << 22, (1 << 22) + 1, (1 << 22) + 2
    reads = {root: [(1, RUNNING)], middle: [None], child: [(middle, STOPPED), (root, STOPPED)]}

    def read(pid):
        answers = reads.get(pid, [read_process(pid)])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    assert descendants(root, parents(read, (root, child, middle))) == [child]


def test_a_process_whose_first_thread_has_ended_is_alive():
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_for(lambda: b"State:\tZ" in Path(f"/proc/{process.pid}/status").read_bytes(), "its first thread to end")
        assert read_process(process.pid) == (os.getpid(), RUNNING)
        assert process.pid in descendants(os.getpid(), parents())
        process.kill()
        wait_for(lambda: read_process(process.pid) == (os.getpid(), DEAD), "it to end")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process a group")
def test_an_escaped_process_whose_first_thread_has_ended_is_killed():
    group = escaped_processes.group_of_exec(1)
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, extra_groups=[group]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_for(lambda: b"State:\tZ" in Path(f"/proc/{process.pid}/status").read_bytes(), "its first thread to end")
        assert escaped_processes.kill_group(group)
        assert process.wait(timeout=10) == -signal.SIGKILL
