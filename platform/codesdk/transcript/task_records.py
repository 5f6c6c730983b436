"""Folds the events of tasks into records."""

from __future__ import annotations

from typing import Any

from codesdk.domain.events import Event
from codesdk.domain.payloads import Payload, TaskCompleted, TaskFailed, TaskStarted, TaskStopped
from codesdk.domain.records import Task, TaskState


class TaskRecords:
    """Collects task records from the events of a valid log, in order."""

    def __init__(self) -> None:
        self._records: dict[str, Task] = {}

    def add(self, event: Event, payload: Payload) -> None:
        """Update the task's record from the event."""
        task = event.trace.task_id
        if task is None:
            return
        if isinstance(payload, TaskStarted):
            self._records[task] = Task(
                id=task,
                session_id=event.trace.session_id,
                state=TaskState.RUNNING,
                runtime=event.runtime.name,
                model=event.runtime.model,
                permission_mode=payload.permission_mode,
                interaction_mode=payload.interaction_mode,
                started_at=event.time,
            )
        elif end := _terminal_update(payload):
            self._records[task] = self._records[task].model_copy(update={**end, "ended_at": event.time})

    def records(self) -> tuple[Task, ...]:
        """Return the tasks in the order in which they started."""
        return tuple(self._records.values())


def _terminal_update(payload: Payload) -> dict[str, Any]:
    match payload:
        case TaskCompleted():
            return {"state": TaskState.COMPLETED, "reason": payload.stop_reason}
        case TaskFailed():
            return {"state": TaskState.FAILED, "error": payload.error}
        case TaskStopped():
            return {"state": TaskState.STOPPED, "reason": payload.reason}
        case _:
            return {}
