"""What a worker does again and again: tables of named tasks, each table on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from codesdk.domain.clock import Clock
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault

_log = logging.getLogger(__name__)


class PeriodicTask(FrozenModel):
    """One line of a table."""

    name: str
    """As the log calls it: "look for idle sandboxes"."""
    every_s: float
    """Seconds from one beginning to the next; more where the work itself, or another task of its round, takes longer."""
    work: Callable[[], object]
    on_failure: str
    """What a fault means until the next try, and who makes up for it."""
    at_once: bool = True
    """Due when the round starts; else `every_s` after that."""


@dataclass
class _ScheduledTask:
    task: PeriodicTask
    due: float
    """On the monotonic clock."""
    reported: str = field(default="")
    """The fault that the log has been told of; empty while all is well."""
    failures: int = 0
    """How often it failed in a row."""


class TaskLoop:
    """A thread that goes through its tasks.

    A task that fails is said and due again after its period; it ends neither the round nor any other task. One that
    hangs holds up those of its own round only: what must not wait for it belongs into another.
    """

    def __init__(self, name: str, clock: Clock, tasks: Sequence[PeriodicTask]) -> None:
        """`name`: the thread's."""
        self._clock = clock
        now = clock.monotonic()
        self._tasks = [_ScheduledTask(task, now + (0.0 if task.at_once else task.every_s)) for task in tasks]
        self._ending = threading.Event()
        self.turns = 0
        """How often it has gone through all of them."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def request_stop(self) -> None:
        """Let nothing more begin; what is at work goes on."""
        self._ending.set()

    def join(self, timeout_s: float) -> bool:
        """Tell it, and wait so long for what is at work. False: that is not over yet. A round that never began is."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def run_due(self) -> float:
        """Do what is due; returns the seconds until something is again."""
        for scheduled in self._tasks:
            began = self._clock.monotonic()
            if began >= scheduled.due and not self._ending.is_set():
                scheduled.due = began + scheduled.task.every_s
                _run_task(scheduled)
        self.turns += 1
        return max(0.0, min((scheduled.due for scheduled in self._tasks), default=0.0) - self._clock.monotonic())

    def _run(self) -> None:
        while self._tasks and not self._ending.wait(self.run_due()):
            pass


def _run_task(scheduled: _ScheduledTask) -> None:
    task = scheduled.task
    try:
        task.work()
    except Fault as fault:
        # Database or engine are away. Rows are facts: what is due is still due then.
        _record_failure(scheduled, f"{fault}", defect=False)
    except Exception as error:  # noqa: BLE001 (a thread's outermost frame)
        _record_failure(scheduled, f"{type(error).__name__}: {error}", defect=True)
    else:
        if scheduled.failures:
            _log.info("the task to %s is done again, after %d that failed", task.name, scheduled.failures)
        scheduled.failures, scheduled.reported = 0, ""


def _record_failure(scheduled: _ScheduledTask, reported: str, *, defect: bool) -> None:
    """Say each fault once in a row: an engine that is away for an hour is one line, not seven thousand."""
    scheduled.failures += 1
    if reported == scheduled.reported:
        return
    scheduled.reported = reported
    task = scheduled.task
    if defect:
        _log.exception("a defect: the task to %s was not done; %s", task.name, task.on_failure)
    else:
        _log.warning("the task to %s was not done: %s; %s", task.name, reported, task.on_failure)
