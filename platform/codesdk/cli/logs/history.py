"""Folds a session's events into its calls: who decided each, and how it ended. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from codesdk.domain.events import Event, EventType
from codesdk.domain.model import FrozenModel


class Evaluation(FrozenModel):
    """One evaluation of a call by policy, a grant or a person."""

    source: str
    result: str
    rule: str | None = None


class Call(FrozenModel):
    """One tool call, as recorded in the log."""

    id: str
    name: str
    input: dict[str, Any] = {}
    voices: tuple[Evaluation, ...] = ()
    state: str = "requested"
    """One of requested, waiting, approved, denied, running, completed, failed."""
    code: str | None = None
    reason: str = ""
    requested_at: str = ""
    ended_at: str = ""
    execution_env: str | None = None
    """Where it ran; None if it didn't run."""
    run_ms: float | None = None
    """Milliseconds in the sandbox."""
    result: Any = None

    @property
    def total_ms(self) -> float | None:
        """Milliseconds from the request to the end, including any wait for approval; None before the end."""
        if not self.ended_at:
            return None
        return (_timestamp(self.ended_at) - _timestamp(self.requested_at)) * 1000


class History(FrozenModel):
    """A session's folded log."""

    calls: tuple[Call, ...] = ()
    last_seq: int = 0
    closed: bool = False

    def call(self, call_id: str) -> Call | None:
        """Return the call with this id."""
        return next((call for call in self.calls if call.id == call_id), None)


class SequenceGap(ValueError):
    """The events are not numbered 1, 2, 3 …."""


def fold(events: Iterable[Event]) -> History:
    """Fold the events, which must start with the first of the log.

    Raises:
        SequenceGap: a `seq` is missing or out of order.
    """
    calls: dict[str, Call] = {}
    seq, closed = 0, False
    for event in events:
        seq += 1
        if event.seq != seq:
            raise SequenceGap(f"The log has event {event.seq} where {seq} should be.")
        closed = closed or event.type is EventType.SANDBOX_SESSION_CLOSED
        call_id = event.payload.get("tool_call_id")
        if isinstance(call_id, str):
            call = calls.get(call_id) or Call(id=call_id, name="")
            calls[call_id] = call.model_copy(update=_reduce(call, event))
    return History(calls=tuple(calls.values()), last_seq=seq, closed=closed)


def _reduce(call: Call, event: Event) -> dict[str, Any]:
    reducer = _REDUCERS.get(event.type) if isinstance(event.type, EventType) else None
    return reducer(call, event) if reducer is not None else {}


def _requested(_call: Call, event: Event) -> dict[str, Any]:
    return {"name": event.payload["name"], "input": event.payload.get("input", {}), "requested_at": event.time}


def _evaluated(call: Call, event: Event) -> dict[str, Any]:
    payload = event.payload
    evaluation = Evaluation(source=payload["source"], result=payload["result"], rule=payload.get("rule"))
    return {"voices": (*call.voices, evaluation), "reason": payload.get("reason") or call.reason}


def _denied(_call: Call, event: Event) -> dict[str, Any]:
    payload = event.payload
    return {"state": "denied", "code": payload.get("code"), "reason": payload["reason"], "ended_at": event.time}


def _completed(_call: Call, event: Event) -> dict[str, Any]:
    payload = event.payload
    return {
        "state": "failed" if payload["is_error"] else "completed",
        "code": payload.get("code"),
        "run_ms": payload.get("duration_ms"),
        "ended_at": event.time,
        "result": payload.get("result_preview"),
    }


_REDUCERS: dict[EventType, Callable[[Call, Event], dict[str, Any]]] = {
    EventType.CALL_REQUESTED: _requested,
    EventType.CALL_POLICY_EVALUATED: _evaluated,
    EventType.APPROVAL_REQUESTED: lambda _call, _event: {"state": "waiting"},
    EventType.CALL_APPROVED: lambda _call, _event: {"state": "approved"},
    EventType.CALL_DENIED: _denied,
    EventType.CALL_STARTED: lambda _call, event: {
        "state": "running",
        "execution_env": event.payload.get("execution_env"),
    },
    EventType.CALL_COMPLETED: _completed,
}


def _timestamp(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
