"""Run the whole suite as continuous integration does: `make test`, then the rest, then each failed test once more.

A test that passes the second time leaves the run green; the output ends with `FLAKY: <test>` for each. A test that
fails twice makes it red. So does, without a second try, anything that a second try can't explain: a failure in
tests/security, a crashed worker process, a process left running, an interrupted run, no tests at all, or more failures
than flaky tests cause.

    python scripts/ci.py [--pytest COMMAND] [--workers N] [SELECTION ...]

Each SELECTION is a marker expression; the default is what `make test` and `make test-all` select. Exit status: 0 green,
1 red, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SELECTIONS = ("not full", "full")
NEVER_AGAIN = ("tests/security/",)
"""An intermittent failure of a security test is a vulnerability, so these get no second try."""
MOST = 20
"""Failures of a run that get a second try. More than that aren't flaky tests."""
GREEN, FAILED, INTERRUPTED = 0, 1, 2
"""Expected exit statuses of pytest: all passed, some failed, Ctrl-C."""


@dataclass
class Run:
    """The recorded results of one run of pytest."""

    status: int
    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    collected: int = 0
    troubles: tuple[str, ...] = ()
    finished: bool = False

    @property
    def broken(self) -> str:
        """Return why the run can't be trusted, regardless of its tests; empty if it can."""
        ran = len(self.passed | self.failed | self.skipped)
        checks = {
            f"pytest ended with status {self.status}": self.status not in (GREEN, FAILED),
            "pytest left no complete record": not self.finished,
            f"there were {len(self.troubles)} troubles outside of tests": bool(self.troubles),
            "no test ran": not self.passed | self.failed,
            f"{self.collected} tests were selected, and {ran} have a result": ran != self.collected,
            f"pytest ended with status {self.status}, and {len(self.failed)} tests failed": (
                (self.status == FAILED) != bool(self.failed)
            ),
        }
        return next((what for what, wrong in checks.items() if wrong), "")


@dataclass
class Verdict:
    """The outcome of all runs."""

    red: list[str] = field(default_factory=list)
    """Reasons, a line each."""
    flaky: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """Tests that are due a second try."""


def judge(runs: Iterable[Run]) -> Verdict:
    """Judge the first runs, and name the tests for a second try."""
    verdict = Verdict()
    failed: set[str] = set()
    for run in runs:
        failed |= run.failed
        if run.broken:
            verdict.red.append(run.broken)
    never = sorted(test for test in failed if test.startswith(NEVER_AGAIN))
    verdict.red += [f"{test} failed, and tests of security get no second try" for test in never]
    rest = sorted(failed - set(never))
    if len(rest) > MOST:
        verdict.red.append(f"{len(rest)} tests failed: more than {MOST} are no flaky tests, and none is tried again")
    elif not verdict.red:
        verdict.again = rest
    else:
        verdict.red += [f"{test} failed" for test in rest]
    return verdict


def judge_again(verdict: Verdict, second: Run) -> Verdict:
    """Judge the second try."""
    if second.broken:
        verdict.red.append(f"the second try: {second.broken}")
    for test in verdict.again:
        if test in second.passed and not second.broken:
            verdict.flaky.append(test)
        else:
            verdict.red.append(f"{test} failed, and did not pass when it was tried again")
    return verdict


class Pytest:
    """Starts pytest, passes an interrupt on to it, and reads its record."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        self._command = command
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def run(self, *words: str) -> Run:
        """Run to the end. If interrupted, stop what it started."""
        if self.interrupted:
            return Run(INTERRUPTED)
        with tempfile.TemporaryDirectory(prefix="codesdk-ci-") as place:
            record = Path(place) / "outcomes.json"
            line = [*self._command, f"--outcomes={record}", *words]
            # Its own process group, so that Ctrl-C reaches it once, through this process.
            self._process = subprocess.Popen(line, cwd=self._cwd, stdin=subprocess.DEVNULL, process_group=0)
            if self.interrupted:  # during the start
                self._process.send_signal(signal.SIGINT)
            status = self._process.wait()
            return read(record, status)


def read(record: Path, status: int) -> Run:
    """Read the record of a run. Without one, only the status counts."""
    try:
        data = json.loads(record.read_text(encoding="utf-8"))
        return Run(
            status,
            frozenset(data["passed"]),
            frozenset(data["failed"]),
            frozenset(data["skipped"]),
            data["collected"],
            tuple(data["troubles"]),
            data["finished"] and data["exit_status"] == status,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Run(status)


def say(line: str) -> None:
    """Print a line at once, before any output of the next program."""
    print(line, flush=True)  # noqa: T201 - a program's output


def main(words: Sequence[str]) -> int:
    """Run all and return the exit status."""
    parser = argparse.ArgumentParser(description="Run the whole suite as continuous integration does.")
    parser.add_argument("--pytest", default=f"{sys.executable} -m pytest", help="the command, split at spaces")
    parser.add_argument("--cwd", type=Path, default=ROOT, help="where to run it")
    parser.add_argument("--workers", default="auto", help="worker processes, as pytest's -n takes them")
    parser.add_argument("selections", nargs="*", default=SELECTIONS, help="marker expressions, a run each")
    given = parser.parse_args(words)
    pytest = Pytest(given.pytest.split(), given.cwd)
    spread = ("-n", given.workers, "--max-worker-restart", "0")
    runs = []
    for number, selection in enumerate(given.selections, 1):
        say(f"\n===== run {number} of {len(given.selections)}: -m {selection!r}")
        runs.append(pytest.run("-m", selection, *spread))
    verdict = judge(runs)
    if verdict.again and not pytest.interrupted:
        say(f"\n===== {len(verdict.again)} failed and are tried again, one after the other")
        verdict = judge_again(verdict, pytest.run("-n", "0", *verdict.again))
    if pytest.interrupted:
        say("\nINTERRUPTED")
        return 130
    return tell(verdict, runs)


def tell(verdict: Verdict, runs: Sequence[Run]) -> int:
    """Print the end of the output, and return the exit status."""
    say("")
    for reason in verdict.red:
        say(f"RED: {reason}")
    for test in verdict.flaky:
        say(f"FLAKY: {test}")
    passed = sum(len(run.passed) for run in runs) + len(verdict.flaky)
    failed = sum(len(run.failed) for run in runs) - len(verdict.flaky)
    skipped = sum(len(run.skipped) for run in runs)
    say(f"===== {passed} passed, {failed} failed, {skipped} skipped, {len(verdict.flaky)} flaky =====")
    return 1 if verdict.red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
