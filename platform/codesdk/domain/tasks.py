"""The state machine of a task (plan, task state machine): it runs, then ends in exactly one way."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.calls import IllegalTransition


class TaskState(StrEnum):
    """Where a task stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def terminal(self) -> bool:
        """Nothing can follow."""
        return self is not TaskState.RUNNING


def check_task_transition(before: TaskState, after: TaskState) -> None:
    """Let a lawful step pass: from running to an end.

    Raises:
        IllegalTransition: names both states; nothing was written.
    """
    if before.terminal or not after.terminal:
        raise IllegalTransition(f"A task cannot go from {before} to {after}.")
