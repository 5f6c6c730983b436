"""The state machine of a task (plan, task state machine): it runs, then ends in exactly one way."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.calls import IllegalTransition


class TaskState(StrEnum):
    """The state of a task."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self is not TaskState.RUNNING


def check_task_transition(before: TaskState, after: TaskState) -> None:
    """Check the transition: only from running to a final state.

    Raises:
        IllegalTransition: with both states; nothing was written.
    """
    if before.terminal or not after.terminal:
        raise IllegalTransition(f"A task cannot go from {before} to {after}.")
