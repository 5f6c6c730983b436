"""The files that an approver was shown are those that run, even if tools in the sandbox change them meanwhile."""

from __future__ import annotations

import threading
import time

import pytest

from codesdk.sandbox.port import ExitKind, FileRefused, FileWrite, FingerprintKind, NamedPath
from sandboxes import DEADLINE_S, request, run

pytestmark = pytest.mark.engine


def marks(box, *paths, cwd="."):
    return box.files.marks(tuple(NamedPath(path=path, cwd=cwd) for path in paths))


def test_a_link_that_was_swapped_for_one_to_the_same_content_is_noticed(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "echo 'echo good' > one; cp one two; ln -s one link")
    bound = marks(box, "link")
    assert bound[0].real == "/workspace/one"
    run(box, "ln", "-sfn", "two", "link")
    ran = run(box, "sh", "link", bound=bound)
    assert (ran.result.kind, "another file" in ran.result.error) == (ExitKind.FILES_CHANGED, True)


def test_a_script_outside_of_the_workspace_is_bound_as_well(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "echo 'echo good' > /tmp/s; ln -s /tmp/s out")
    bound = marks(box, "/tmp/s", "out")
    assert {mark.real for mark in bound} == {"/tmp/s"}
    run(box, "sh", "-c", "echo 'echo bad!' > /tmp/s")
    assert run(box, "sh", "out", bound=bound).result.kind is ExitKind.FILES_CHANGED


def test_a_directory_on_the_way_that_was_swapped_is_noticed(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "mkdir a b; echo 'echo good' > a/s; echo 'echo bad!' > b/s")
    bound = marks(box, "s", cwd="a")
    run(box, "sh", "-c", "mv a c; mv b a")
    assert run(box, "sh", "s", cwd="a", bound=bound).result.kind is ExitKind.FILES_CHANGED


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/proc/self/environ", FingerprintKind.OTHER), ("/proc/self/mem", FingerprintKind.OTHER), ("/dev/zero", FingerprintKind.OTHER),
        ("fifo", FingerprintKind.OTHER), ("closed", FingerprintKind.CLOSED), ("loop", FingerprintKind.OTHER), ("n\0ul", FingerprintKind.ABSENT),
        ("x" * 300, FingerprintKind.OTHER), ("/etc/shadow", FingerprintKind.CLOSED),
    ],
)  # fmt: skip
def test_what_is_no_readable_file_is_told_as_what_it_is_and_holds_nothing_up(open_sandbox, path, kind):
    box = open_sandbox()
    run(box, "sh", "-c", "mkfifo fifo; touch closed; chmod 000 closed; ln -s loop loop")
    (mark,) = marks(box, path)
    assert mark.kind is kind or (path == "/etc/shadow" and mark.kind is FingerprintKind.ABSENT)
    assert mark.sha256 is None


def test_more_than_can_be_hashed_is_told_by_its_size_and_more_names_than_may_be_are_refused(open_sandbox):
    box = open_sandbox(file_bytes=0)
    run(box, "truncate", "-s", "300M", "huge")
    (mark,) = marks(box, "huge")
    assert (mark.kind, mark.size) == (FingerprintKind.LARGE, 300 * 1000 * 1000 if mark.size < 300 << 20 else 300 << 20)
    assert isinstance(marks(box, *map(str, range(1025))), FileRefused)


def swapped(box, path, **more):
    """How a start ends whose script was swapped for one of the same size after the approval; `s` is the script."""
    bound = marks(box, path, **more)
    run(box, "sh", "-c", "printf 'echo bad!\\n' > s; if [ -d /tmp/home ]; then cp s /tmp/home/s; fi")
    return bound[0].kind, run(box, "sh", "-c", f"cd {more.get('cwd', '.')} && sh {path}", bound=bound)


@pytest.mark.parametrize(
    ("path", "cwd"),
    [
        ("/proc/self/cwd/s", "."), ("/proc/thread-self/cwd/s", "."), ("/proc/self/root/workspace/s", "."), ("link", "."),
        ("/proc/4194000/cwd/s", "."), ("s", "/proc/self/cwd"), ("s", "/tmp/home"), ("home/s", "../tmp"), ("s", "out"),
        ("s", "~"), ("s", "sub/.."),
    ],
)  # fmt: skip
def test_no_directory_and_no_link_of_proc_leads_to_a_script_that_is_not_bound(open_sandbox, path, cwd):
    box = open_sandbox()
    line = (
        "mkdir -p /tmp/home sub; echo echo good > s; cp s /tmp/home/s; ln -s /proc/self/cwd/s link; ln -s /tmp/home out"
    )
    run(box, "sh", "-c", line)
    kind, ran = swapped(box, path, cwd=cwd)
    assert ran.result.kind is ExitKind.FILES_CHANGED, (kind, ran)
    assert kind is (FingerprintKind.UNBINDABLE if "proc" in path + cwd or path == "link" else FingerprintKind.FILE)


def test_a_programs_own_descriptors_are_no_files_and_may_be_named(open_sandbox):
    box = open_sandbox()
    for path in ("/dev/stdin", "/dev/stderr", "/dev/fd/63", "/proc/self/fd/0", "/proc/self/status", "/dev/null"):
        bound = marks(box, path)
        assert bound[0].kind is FingerprintKind.OTHER
        assert run(box, "true", bound=bound).result.exit_code == 0


def test_a_program_that_can_be_run_but_not_read_is_not_bound(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "cp /bin/true tool; chmod 111 tool")
    bound = marks(box, "./tool")
    ran = run(box, "./tool", bound=bound)
    assert (bound[0].kind, ran.result.kind) == (FingerprintKind.UNBINDABLE, ExitKind.FILES_CHANGED)


def test_a_large_file_that_the_call_names_first_leaves_its_script_bound(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "truncate -s 256M pad; echo 'echo good' > s")
    bound = marks(box, "pad", "s")
    assert [mark.kind for mark in bound] == [FingerprintKind.LARGE, FingerprintKind.FILE]
    run(box, "sh", "-c", "echo 'echo bad!' > s")
    assert run(box, "sh", "s", "pad", bound=bound).result.kind is ExitKind.FILES_CHANGED


LEASE = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open("s", os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
time.sleep(600)
"""


def test_a_lease_on_a_file_holds_no_one_up(open_sandbox):
    """The kernel takes a lease away after 45 seconds only; until then whoever opens the file waits."""
    box = open_sandbox()
    run(box, "sh", "-c", "echo 'echo good' > s")
    bound = marks(box, "s")
    box.processes.start(request("python3", "-c", LEASE, call="lease", timeout_s=60))
    assert box.processes.output("lease", 1, "stdout", 0, wait_s=10).data == b"leased\n"
    began = time.monotonic()
    assert marks(box, "s")[0].kind is FingerprintKind.UNBINDABLE
    assert run(box, "sh", "s", bound=bound).result.kind is ExitKind.FILES_CHANGED
    assert b"".join(box.snapshot())
    assert time.monotonic() - began < 20
    box.cancel("lease", 1)


def test_a_program_that_starts_during_the_check_is_stopped_like_the_others(open_sandbox):
    box = open_sandbox()
    line = "while :; do ln -f bad n && mv -f n script.sh; ln -f good n && mv -f n script.sh; done"
    contents = {"good": b"exit 0\n", "bad": b"exit 66\n", "script.sh": b"exit 0\n"}
    writes = tuple(FileWrite(path=path, content=content) for path, content in contents.items())
    box.files.write(writes)
    bound, ends = marks(box, "script.sh"), []
    for turn in range(100):
        box.files.write(writes)
        box.processes.start(request("sh", "-c", line, call=f"late{turn}", timeout_s=60))
        ends.append(run(box, "sh", "script.sh", bound=bound).result)
        box.cancel(f"late{turn}", 1)
    assert {end.exit_code for end in ends if end.kind is ExitKind.EXITED} == {0}


VFORK = """
import ctypes
libc = ctypes.CDLL(None)
print("up", flush=True)
if libc.vfork() == 0: libc.pause()
"""


def test_a_program_that_waits_in_a_vfork_keeps_no_call_from_starting(open_sandbox):
    box = open_sandbox()
    run(box, "sh", "-c", "echo 'echo good' > s")
    bound = marks(box, "s")
    box.processes.start(request("python3", "-c", VFORK, call="vfork", timeout_s=60))
    box.processes.output("vfork", 1, "stdout", 0, wait_s=10)
    for _ in range(5):
        assert run(box, "sh", "s", bound=bound).stdout == b"good\n"
    box.cancel("vfork", 1)


REWRITER = """
import os, time
good, bad = b"exit 0\\n", b"exit 66\\n"
print("at work", flush=True)
while True:
    for content in (good, bad):
        with open("next", "wb") as file: file.write(content)
        os.rename("next", "script.sh")
"""


def test_a_program_that_swaps_the_script_all_the_time_never_gets_its_own_one_run(open_sandbox):
    """Either the script is the approved one, and it runs, or nothing is started."""
    box = open_sandbox()
    box.files.write((FileWrite(path="script.sh", content=b"exit 0\n"),))
    bound = marks(box, "script.sh")
    box.processes.start(request("python3", "-c", REWRITER, call="rewriter", timeout_s=60))
    box.processes.output("rewriter", 1, "stdout", 0, wait_s=10)
    ends = [run(box, "sh", "script.sh", bound=bound).result for _ in range(20)]
    assert {end.kind for end in ends} <= {ExitKind.EXITED, ExitKind.FILES_CHANGED}
    assert all(end.exit_code == 0 for end in ends if end.kind is ExitKind.EXITED)
    box.cancel("rewriter", 1)


SWAPPER = """
import os
for _ in range(3):
    if os.fork() == 0:
        break
print("at work", flush=True)
name = "next-%d" % os.getpid()
while True:
    for content in ("good", "bad"):
        os.link(content, name)
        os.rename(name, "script.sh")
"""


@pytest.mark.full
def test_of_500_approvals_none_runs_the_other_file_that_four_processes_swap_in(open_sandbox):
    box = open_sandbox()
    contents = {"good": b"exit 0\n", "bad": b"exit 66\n", "script.sh": b"exit 0\n"}
    box.files.write(tuple(FileWrite(path=path, content=content) for path, content in contents.items()))
    bound = marks(box, "script.sh")
    box.processes.start(request("python3", "-c", SWAPPER, call="swapper", timeout_s=250))
    box.processes.output("swapper", 1, "stdout", 0, wait_s=10)
    ends, until = [], time.monotonic() + 200.0
    # On a busy machine all may find the same file for long; then it goes on, so that some find each.
    while len(ends) < 500 or (len({end.kind for end in ends}) < 2 and time.monotonic() < until):
        ends.append(run(box, "sh", "script.sh", bound=bound).result)
        time.sleep(0.003)
    assert {end.kind for end in ends} == {ExitKind.EXITED, ExitKind.FILES_CHANGED}
    assert {end.exit_code for end in ends if end.kind is ExitKind.EXITED} == {0}
    box.cancel("swapper", 1)


def test_other_tools_stand_still_for_a_moment_and_then_go_on_and_what_starts_meanwhile_only_waits(open_sandbox):
    box = open_sandbox()
    box.files.write((FileWrite(path="s", content=b"sleep 0.5\n"),))
    bound = marks(box, "s")
    box.processes.start(request("sh", "-c", "while :; do echo x; sleep 0.01; done", call="beat", timeout_s=60))
    ends = []

    def runs(*argv, **more):
        ends.append(run(box, *argv, **more).result)

    threads = [threading.Thread(target=runs, args=("sh", "s"), kwargs={"bound": bound}) for _ in range(3)]
    threads += [threading.Thread(target=runs, args=("true",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [(end.kind, end.exit_code) for end in ends] == [(ExitKind.EXITED, 0)] * 6
    before = box.processes.output("beat", 1, "stdout", 0).seen
    assert box.processes.output("beat", 1, "stdout", before, wait_s=10).seen > before
    box.cancel("beat", 1)


def test_a_worker_that_connects_while_files_are_looked_at_asks_again_and_nothing_runs_twice(open_sandbox):
    box = open_sandbox()
    box.files.write((FileWrite(path="s", content=b"echo ran >> runs\n"),))
    bound = marks(box, "s")
    asked = request("sh", "s", bound=bound)
    ends = []
    runner = threading.Thread(target=lambda: ends.append(box.exec(asked, lambda _: None)))
    runner.start()
    for _ in range(5):
        if box._client.latest is not None:
            box._client.latest.close()
    runner.join(DEADLINE_S)
    assert ends[0].exit_code == 0
    assert box.files.read("runs").data == b"ran\n"
