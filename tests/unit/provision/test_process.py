from __future__ import annotations

import subprocess
import sys

import pytest

from codesdk.provision.system.process_identity import ProcessIdentity, mark, name, pid_in


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_pid_with_another_start_time_is_another_process(sleeper):
    known = mark(sleeper.pid)
    assert known.alive
    assert not ProcessIdentity(known.pid, known.started - 1).alive


def test_a_zombie_is_not_alive(sleeper):
    known = mark(sleeper.pid)
    sleeper.kill()
    assert known.wait(10)  # nobody has reaped it yet
    assert mark(sleeper.pid) is None


def test_terminate_ends_that_process_and_spares_one_that_got_its_pid(sleeper):
    known = mark(sleeper.pid)
    ProcessIdentity(known.pid, known.started - 1).terminate(1)
    assert known.alive
    known.terminate(10)
    assert not known.alive


def test_the_name_is_the_kernels():
    assert name(1)
    assert not name(2**22 + 1)


@pytest.mark.parametrize(
    ("text", "pid"), [("12\n", 12), ("", None), ("0", None), ("-1", None), ("x", None), ("²", None)]
)
def test_only_a_positive_number_is_a_pid(text, pid):
    assert pid_in(text) == pid
