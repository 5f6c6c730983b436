"""When a run of continuous integration is green, and when it must not be."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "ci.py"
_spec = importlib.util.spec_from_file_location("ci", SCRIPT)
ci = importlib.util.module_from_spec(_spec)
sys.modules["ci"] = ci  # dataclasses look their module up
_spec.loader.exec_module(ci)

A, B, SECURITY = "tests/unit/test_a.py::test_a", "tests/unit/test_b.py::test_b", "tests/security/test_c.py::test_c"
DEADLINE_S = 120


def run(passed=(), failed=(), skipped=(), **more):
    given = {"status": ci.FAILED if failed else ci.GREEN, "finished": True, **more}
    given.setdefault("collected", len(passed) + len(failed) + len(skipped))
    return ci.Run(passed=frozenset(passed), failed=frozenset(failed), skipped=frozenset(skipped), **given)


def test_what_passes_is_green():
    assert ci.judge([run([A]), run([B])]) == ci.Verdict()


def test_a_failure_gets_a_second_try():
    assert ci.judge([run([A], [B])]).again == [B]


def test_a_second_try_that_passes_leaves_it_green_and_names_the_test():
    assert ci.judge_again(ci.Verdict(again=[B]), run([B])) == ci.Verdict(again=[B], flaky=[B])


@pytest.mark.parametrize(
    "second",
    [run([], [B]), run([A], []), run([A], [], [B]), run([B], [], status=3), run([B], finished=False), run()],
    ids=["fails", "is not run", "is skipped", "broken", "cut off", "nothing"],
)
def test_any_other_second_try_is_red(second):
    verdict = ci.judge_again(ci.Verdict(again=[B]), second)
    assert verdict.red
    assert not verdict.flaky


def test_security_has_no_second_try():
    verdict = ci.judge([run([A], [SECURITY])])
    assert verdict.red
    assert not verdict.again


def test_beside_a_failure_of_security_the_other_failures_are_told():
    assert any(A in line for line in ci.judge([run([], [A, SECURITY])]).red)


@pytest.mark.parametrize(
    "broken",
    [
        run([A], status=3),
        run([A], status=2),
        run([A], status=-9),
        run([A], finished=False),
        run([A], troubles=("worker 'gw0' crashed",)),
        run([A], collected=2),
        run([A], status=ci.FAILED),
        run([A], [B], status=ci.GREEN),
        run([], [], [A]),
        run(status=5),
        run(),
    ],
    ids=[
        "internal error",
        "interrupted",
        "killed",
        "cut off",
        "trouble",
        "a test without result",
        "a failure that no test explains",
        "a failure that pytest does not tell",
        "all skipped",
        "nothing collected",
        "nothing ran",
    ],
)
def test_a_run_that_cannot_be_trusted_is_red(broken):
    assert ci.judge([run([B]), broken]).red


def test_many_failures_are_no_flaky_tests():
    many = [f"tests/unit/test_many.py::test_{number}" for number in range(ci.MOST + 1)]
    verdict = ci.judge([run([A], many)])
    assert verdict.red
    assert not verdict.again


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"passed": 1}'])
def test_a_record_that_is_none_is_no_result(tmp_path, text):
    (tmp_path / "record").write_text(text)
    assert ci.read(tmp_path / "record", ci.GREEN).broken
    assert ci.read(tmp_path / "missing", ci.GREEN).broken


# -- the script, with the real pytest on a suite of a few tests -------------------------------------------------------

CONFTEST = """
pytest_plugins = ["run_control"]

def pytest_sessionfinish(session):
    from run_control import closing
    closing(session, lambda: None)
"""
FLAKY = """
from pathlib import Path

def test_passes():
    pass

def test_fails_once():
    place = Path(__file__).with_name("tried")
    tried = place.exists()
    place.touch()
    assert tried
"""


@pytest.fixture
def suite(tmp_path):
    def write(text, folder="unit"):
        directory = tmp_path / "tests" / folder
        directory.mkdir(parents=True)
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = full\n")
        (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
        (directory / "test_small.py").write_text(text)
        return tmp_path

    return write


def start(place, *words):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ["PYTHONPATH"] = str(ROOT / "tests")
    line = [sys.executable, SCRIPT, "--cwd", place, "--workers", "2", *(words or ["not full"])]
    return subprocess.Popen(
        line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )


def ended(process):
    said, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


def test_a_test_that_passes_the_second_time_is_named_and_leaves_it_green(suite):
    status, said = ended(start(suite(FLAKY)))
    assert status == 0, said
    assert "\nFLAKY: tests/unit/test_small.py::test_fails_once\n" in said
    assert "2 passed, 0 failed, 0 skipped, 1 flaky" in said.splitlines()[-1]


@pytest.mark.full
def test_a_test_that_fails_twice_is_red(suite):
    status, said = ended(start(suite("def test_fails():\n    assert False\n\ndef test_passes():\n    pass\n")))
    assert status == 1
    assert "1 passed, 1 failed" in said.splitlines()[-1]


@pytest.mark.full
def test_a_test_of_security_that_fails_once_is_red(suite):
    status, said = ended(start(suite(FLAKY, "security")))
    assert status == 1
    assert "FLAKY" not in said


@pytest.mark.full
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\n\ndef test_crashes():\n    os._exit(0)\n\ndef test_passes():\n    pass\n", "crashed"),
        ("import nothing_of_that_name\n", "cannot be collected"),
        (
            "import subprocess\n\ndef test_leaves():\n    subprocess.Popen(['sleep', '600'], start_new_session=True)\n",
            "left running",
        ),
    ],
    ids=["a worker that crashes", "a module that cannot be imported", "a process that is left"],
)
def test_trouble_outside_of_tests_is_red(suite, text, told):
    status, said = ended(start(suite(text)))
    assert status == 1, said
    assert told in said
    assert "FLAKY" not in said


@pytest.mark.full
def test_a_selection_that_selects_nothing_is_red(suite):
    status, said = ended(start(suite("def test_passes():\n    pass\n"), "not full", "full"))
    assert status == 1, said
    assert "1 passed, 0 failed" in said.splitlines()[-1]


LONG = """
import subprocess, time
from pathlib import Path

import pytest

@pytest.fixture
def program():
    started = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield started
    started.kill()
    started.wait()
    Path(__file__).with_name("torn-down").touch()

def test_waits(program):
    Path(__file__).with_name("begun").write_text(str(program.pid))
    time.sleep(600)

def test_passes():
    pass
"""


@pytest.mark.full
def test_an_interrupt_ends_it_in_order_and_leaves_nothing(suite):
    place = suite(LONG)
    process = start(place)
    begun = place / "tests" / "unit" / "begun"
    until = time.monotonic() + DEADLINE_S
    while not (begun.exists() and begun.read_text()):
        assert time.monotonic() < until
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    status, said = ended(process)
    assert status == 130, said
    assert begun.with_name("torn-down").exists()
    assert not Path(f"/proc/{begun.read_text()}").exists()
    assert "left running" not in said
