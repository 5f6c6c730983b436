from __future__ import annotations

import itertools

import pytest

from codesdk.domain.calls import IllegalTransition
from codesdk.domain.tasks import TaskState, check_task_transition


@pytest.mark.parametrize(("before", "after"), list(itertools.product(TaskState, TaskState)))
def test_a_task_runs_and_then_ends_in_exactly_one_way(before, after):
    if (before.value, after.value) in {("running", "completed"), ("running", "failed"), ("running", "stopped")}:
        check_task_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"cannot go from {before} to {after}"):
            check_task_transition(before, after)


def test_only_running_is_no_end():
    assert [state for state in TaskState if not state.terminal] == [TaskState.RUNNING]
