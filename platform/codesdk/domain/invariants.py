"""Invariants of a session's log (plan, core invariants; DESIGN section 4), checked event by event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from codesdk.domain.events import Event, EventType
from codesdk.domain.model import FrozenModel


class Invariant(StrEnum):
    """The invariants, by name."""

    SEQ_IS_DENSE = "seq is dense"
    ONE_SESSION = "a log is of one session"
    CREATED_FIRST = "session.created is first, and once"
    TASK_IS_NAMED = "a task's event names its task"
    TASK_STARTS_FIRST = "task.started is the task's first event, and once"
    TASK_ENDS_LAST = "a task ends once, and nothing of it follows"
    ONE_ACTIVE_TASK = "a session has one active task"
    CALL_HAS_IDENTITY = "a call's event carries its identity"
    REQUESTED_FIRST = "requested is the attempt's first event, and once"
    ATTEMPTS_IN_ORDER = "an attempt follows the end of the one before"
    INPUT_IS_THE_SAME = "the input of an attempt does not change"
    ONE_DECISION = "approved or denied, once, after every voice"
    NOTHING_AFTER_DENIAL = "nothing of a denied attempt follows"
    STARTED_ONCE = "started is once, after approved"
    COMPLETED_ONCE = "completed is once, after started, and last"
    OUTPUT_WHILE_RUNNING = "output comes between started and completed"
    NOTHING_LEFT_OPEN = "no task ends before its calls"


class Violation(FrozenModel):
    """The first event that violates an invariant."""

    rule: Invariant
    seq: int
    """The event's `seq`."""
    message: str
    """A sentence about what is wrong."""


class _InvariantViolated(Exception):
    def __init__(self, rule: Invariant, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def first_violation(events: Iterable[Event]) -> Violation | None:
    """Return the first violation in a log that is read from its beginning, or None.

    Unfinished tasks and calls are no violation, because a log grows.
    """
    ledger = InvariantChecker()
    return next((found for event in events if (found := ledger.add(event)) is not None), None)


class InvariantChecker:
    """Checks the events of one log."""

    def __init__(self) -> None:
        self._seq = 0
        self._session = ""
        self._active_task: str | None = None
        self._tasks: dict[str, bool] = {}  # whether each has ended
        self._calls: dict[str, dict[int, _AttemptTrace]] = {}

    def add(self, event: Event) -> Violation | None:
        """Check the next event. After a violation, further results are meaningless."""
        try:
            self._check_session(event)
            self._check_task(event)
            if str(event.type).startswith("tool."):
                self._check_call(event)
        except _InvariantViolated as broken:
            return Violation(rule=broken.rule, seq=event.seq, message=f"Event {event.seq} ({event.type}): {broken}.")
        return None

    def _check_session(self, event: Event) -> None:
        self._seq += 1
        if event.seq != self._seq:
            raise _InvariantViolated(Invariant.SEQ_IS_DENSE, f"it stands where {self._seq} should")
        self._session = self._session or event.trace.session_id
        if event.trace.session_id != self._session:
            raise _InvariantViolated(
                Invariant.ONE_SESSION, f"it is of {event.trace.session_id}, the log of {self._session}"
            )
        if (event.type is EventType.SESSION_CREATED) is not (event.seq == 1):
            raise _InvariantViolated(Invariant.CREATED_FIRST, "session.created is the first event, and no other")

    def _check_task(self, event: Event) -> None:
        task = event.trace.task_id
        if task is None:
            if event.type is EventType.TASK_STARTED or event.type in _TASK_ENDS:
                raise _InvariantViolated(Invariant.TASK_IS_NAMED, "it has no task_id")
            return
        if (event.type is EventType.TASK_STARTED) is (task in self._tasks):
            raise _InvariantViolated(
                Invariant.TASK_STARTS_FIRST, f"{task} {'had started' if task in self._tasks else 'has not started'}"
            )
        if self._tasks.get(task):
            raise _InvariantViolated(Invariant.TASK_ENDS_LAST, f"{task} had ended")
        if event.type is EventType.TASK_STARTED:
            if self._active_task is not None:
                raise _InvariantViolated(Invariant.ONE_ACTIVE_TASK, f"{self._active_task} has not ended")
            self._active_task = task
            self._tasks[task] = False
        elif event.type in _TASK_ENDS:
            self._end_task(task)

    def _end_task(self, task: str) -> None:
        for call, attempts in self._calls.items():
            for number, attempt in attempts.items():
                if attempt.task == task and not attempt.ended:
                    raise _InvariantViolated(Invariant.NOTHING_LEFT_OPEN, f"attempt {number} of {call} has not ended")
        self._tasks[task] = True
        self._active_task = None

    def _check_call(self, event: Event) -> None:
        call, number = event.payload.get("tool_call_id"), event.payload.get("attempt")
        input_hash = event.payload.get("input_hash")
        if not (isinstance(call, str) and isinstance(number, int) and isinstance(input_hash, str)):
            raise _InvariantViolated(Invariant.CALL_HAS_IDENTITY, "tool_call_id, attempt or input_hash is missing")
        attempts = self._calls.setdefault(call, {})
        named = f"attempt {number} of {call}"
        if event.type is EventType.CALL_REQUESTED:
            if number in attempts:
                raise _InvariantViolated(Invariant.REQUESTED_FIRST, f"{named} was requested before")
            _check_order(attempts, number, named)
            attempts[number] = _AttemptTrace(input_hash=input_hash, task=event.trace.task_id)
        elif number not in attempts:
            raise _InvariantViolated(Invariant.REQUESTED_FIRST, f"{named} was not requested")
        elif attempts[number].input_hash != input_hash:
            raise _InvariantViolated(Invariant.INPUT_IS_THE_SAME, f"{named} was requested with another input")
        else:
            attempts[number].add(event.type, named)


class _Stage(StrEnum):
    REQUESTED = "requested"
    APPROVED = "approved"
    RUNNING = "running"
    COMPLETED = "completed"
    DENIED = "denied"


_TRANSITIONS: dict[str, tuple[_Stage, _Stage, Invariant]] = {
    EventType.CALL_POLICY_EVALUATED: (_Stage.REQUESTED, _Stage.REQUESTED, Invariant.ONE_DECISION),
    EventType.CALL_APPROVED: (_Stage.REQUESTED, _Stage.APPROVED, Invariant.ONE_DECISION),
    EventType.CALL_DENIED: (_Stage.REQUESTED, _Stage.DENIED, Invariant.ONE_DECISION),
    EventType.CALL_STARTED: (_Stage.APPROVED, _Stage.RUNNING, Invariant.STARTED_ONCE),
    EventType.OUTPUT_DELTA: (_Stage.RUNNING, _Stage.RUNNING, Invariant.OUTPUT_WHILE_RUNNING),
    EventType.OUTPUT_COMPLETED: (_Stage.RUNNING, _Stage.RUNNING, Invariant.OUTPUT_WHILE_RUNNING),
    EventType.CALL_COMPLETED: (_Stage.RUNNING, _Stage.COMPLETED, Invariant.COMPLETED_ONCE),
}
"""Per event type: the stage before, the stage after, and the invariant that requires it."""
_TERMINAL = {_Stage.DENIED: Invariant.NOTHING_AFTER_DENIAL, _Stage.COMPLETED: Invariant.COMPLETED_ONCE}


@dataclass
class _AttemptTrace:
    input_hash: str
    task: str | None
    stage: _Stage = _Stage.REQUESTED

    @property
    def ended(self) -> bool:
        return self.stage in _TERMINAL

    def add(self, kind: str, named: str) -> None:
        before, after, rule = _TRANSITIONS[kind]
        if self.stage is not before:
            raise _InvariantViolated(
                _TERMINAL.get(self.stage, rule), f"{named} is {self.stage}, and should be {before}"
            )
        self.stage = after


_TASK_ENDS = (EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_STOPPED)


def _check_order(attempts: dict[int, _AttemptTrace], number: int, named: str) -> None:
    before = attempts.get(number - 1)
    if number != 1 and (before is None or not before.ended):
        raise _InvariantViolated(Invariant.ATTEMPTS_IN_ORDER, f"{named} comes before the end of attempt {number - 1}")
