"""Periodic tasks: named tasks that a loop runs at intervals, each loop on its own thread."""

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
    """A task and its interval."""

    name: str
    """Its name in the log, as "look for idle sandboxes"."""
    every_s: float
    """Seconds from one start to the next. More if this or another task of the loop takes longer."""
    work: Callable[[], object]
    on_failure: str
    """What a failure means until the next run; logged with it."""
    at_once: bool = True
    """Due when the loop starts. False: `every_s` later."""


@dataclass
class _ScheduledTask:
    task: PeriodicTask
    due: float
    """On the monotonic clock."""
    reported: str = field(default="")
    """The failure last logged. Empty after a success."""
    failures: int = 0
    """Failures in a row."""


class TaskLoop:
    """A thread that runs its tasks in turn.

    A failed task is logged and runs again after its interval; the loop goes on. A task that hangs blocks only its own
    loop, so put tasks that must not wait for it into another.
    """

    def __init__(self, name: str, clock: Clock, tasks: Sequence[PeriodicTask]) -> None:
        """`name`: of the thread."""
        self._clock = clock
        now = clock.monotonic()
        self._tasks = [_ScheduledTask(task, now + (0.0 if task.at_once else task.every_s)) for task in tasks]
        self._ending = threading.Event()
        self.turns = 0
        """Completed passes over all tasks."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Call once."""
        self._thread.start()

    def request_stop(self) -> None:
        """Start no more tasks. A running task continues."""
        self._ending.set()

    def join(self, timeout_s: float) -> bool:
        """Request a stop and wait for the running task. False: it still runs after `timeout_s`. True for a loop that never started."""
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def run_due(self) -> float:
        """Run the tasks that are due. Returns the seconds until the next one is."""
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
        # Database or engine unavailable. What is due stays due in the rows.
        _record_failure(scheduled, f"{fault}", defect=False)
    except Exception as error:  # noqa: BLE001 (a thread's outermost frame)
        _record_failure(scheduled, f"{type(error).__name__}: {error}", defect=True)
    else:
        if scheduled.failures:
            _log.info("the task to %s is done again, after %d that failed", task.name, scheduled.failures)
        scheduled.failures, scheduled.reported = 0, ""


def _record_failure(scheduled: _ScheduledTask, reported: str, *, defect: bool) -> None:
    """Log each failure once in a row: an engine that is down for an hour is one line, not seven thousand."""
    scheduled.failures += 1
    if reported == scheduled.reported:
        return
    scheduled.reported = reported
    task = scheduled.task
    if defect:
        _log.exception("a defect: the task to %s was not done; %s", task.name, task.on_failure)
    else:
        _log.warning("the task to %s was not done: %s; %s", task.name, reported, task.on_failure)
