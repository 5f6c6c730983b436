"""The end of a run: ordered if it is interrupted, red if a worker process dies, and recorded with --outcomes.

A failure outside of any test (a worker that crashes, a server that does not stop, a process left running) is a trouble:
it is printed at the end and makes the run fail.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import traceback
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

import leftovers

INTERRUPTED_S = 90.0
"""Seconds that workers have to stop what they started, once a run is interrupted."""
TROUBLES = "troubles"
"""In what a worker tells at its end."""


@dataclass
class Outcomes:
    """What came of a run; `scripts/ci.py` reads it from the file that --outcomes names."""

    collected: int = 0
    """Tests that were selected."""
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """With those whose set-up or tear-down failed: each test is in one list."""
    troubles: list[str] = field(default_factory=list)
    exit_status: int = -1
    finished: bool = False


class RunControl:
    """One run, as the process sees it that reports it: the only one, or the one that the workers report to."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.outcomes = Outcomes()
        self._results: dict[str, str] = {}
        self._nodes: list[Any] = []

    # -- what came of each test ------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test: the worst of its parts is what came of it."""
        if report.when == "???":  # what xdist reports for a test whose worker died
            self.outcomes.troubles.append(str(report.longrepr))
        before = self._results.get(report.nodeid, "")
        order = ("", "passed", "skipped", "failed")
        self._results[report.nodeid] = max(before, report.outcome, key=order.index)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported."""
        if report.failed:
            self.outcomes.troubles.append(f"{report.nodeid} cannot be collected")

    def pytest_internalerror(self, excrepr: Any) -> None:
        """An error of pytest itself, or of a hook of ours."""
        self.outcomes.troubles.append(f"internal error: {excrepr}")

    # -- workers ---------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """A worker has started."""
        self._nodes.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker has ended."""
        told = getattr(node, "workeroutput", None)
        self.outcomes.troubles += (told or {}).get(TROUBLES, [])
        if error not in (None, "keyboard-interrupt"):
            self.outcomes.troubles.append(f"worker {node.gateway.id} ended: {error}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Where the run is interrupted, have the workers stop what they started, before xdist would kill them."""
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            for node in self._nodes:
                if not node.channel.isclosed():
                    node.gateway._io.popen.send_signal(signal.SIGINT)
            waiting = [threading.Thread(target=_await_end, args=(node,)) for node in self._nodes]
            for thread in waiting:
                thread.start()
            for thread in waiting:
                thread.join()

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self, session: pytest.Session) -> None:
        """Nothing of the run may be left; whatever is makes it fail."""
        for left in leftovers.end_processes(os.environ[leftovers.RUN], self._place()):
            self.outcomes.troubles.append(f"left running, and ended now: {left}")
        if self.outcomes.troubles and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        self._record(session)

    def _place(self) -> Path | None:
        factory = getattr(self.config, "_tmp_path_factory", None)
        return factory.getbasetemp() if factory is not None else None

    def _record(self, session: pytest.Session) -> None:
        place = self.config.getoption("outcomes")
        if place is None:
            return
        for nodeid, result in sorted(self._results.items()):
            getattr(self.outcomes, result).append(nodeid)
        self.outcomes.collected = session.testscollected
        self.outcomes.exit_status = int(session.exitstatus)
        self.outcomes.finished = True
        Path(place).write_text(json.dumps(asdict(self.outcomes), indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name the troubles."""
        if self.outcomes.troubles:
            terminalreporter.section("troubles outside of tests", red=True)
            for trouble in self.outcomes.troubles:
                terminalreporter.write_line(trouble)


def _await_end(node: Any) -> None:
    try:
        node.channel.waitclose(INTERRUPTED_S)
    except (node.channel.RemoteError, node.channel.TimeoutError, EOFError):
        return


CONTROL = pytest.StashKey[RunControl]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file that tells what came of each test."""
    parser.addoption("--outcomes", metavar="FILE", help="write what came of each test to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Mark all processes of this run, and give each worker a process group: an interrupt reaches it through the first."""
    if hasattr(config, "workerinput"):
        os.setpgid(0, 0)
        return
    os.environ[leftovers.RUN] = uuid.uuid4().hex
    config.stash[CONTROL] = control = RunControl(config)
    config.pluginmanager.register(control, "run-control")
    if config.getoption("numprocesses", None):
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker that tears down is not interrupted in that; who has no time for it kills it."""
    if hasattr(session.config, "workerinput"):
        signal.signal(signal.SIGINT, lambda *_: None)


def closing(session: pytest.Session, close: Callable[[], object]) -> None:
    """Stop what this process started, and see that nothing of the run is left."""
    control = session.config.stash.get(CONTROL, None)
    try:
        close()
    except Exception:  # noqa: BLE001 - whatever it was: it must not be lost on the way to the process that reports
        trouble = f"stopping what the run started failed:\n{traceback.format_exc()}"
        if control is None:
            session.config.workeroutput.setdefault(TROUBLES, []).append(trouble)
        else:
            control.outcomes.troubles.append(trouble)
    if control is not None:
        control.finish(session)
