from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codesdk.domain.calls import TRANSITIONS, Attempt, CallState, IllegalTransition, check_transition

# The contract's machine, written once more by hand.
LAWFUL = {
    ("waiting_for_tool_decision", "queued"),
    ("waiting_for_tool_decision", "denied"),
    ("queued", "running_tool"),
    ("queued", "denied"),
    ("running_tool", "completed"),
    # Where an adapter tells the runtime how it ended, on the way to any end.
    ("waiting_for_tool_decision", "feeding_tool_result"),
    ("queued", "feeding_tool_result"),
    ("running_tool", "feeding_tool_result"),
    ("feeding_tool_result", "completed"),
    ("feeding_tool_result", "denied"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CallState, CallState)))
def test_exactly_the_lawful_steps_pass(before, after):
    if (before.value, after.value) in LAWFUL:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"cannot go from {before} to {after}"):
            check_transition(before, after)


@pytest.mark.parametrize("state", CallState)
def test_terminal_is_where_nothing_follows(state):
    assert state.terminal == (not TRANSITIONS[state])


class Lives(RuleBasedStateMachine):
    """A call under any sequence of wishes: what happened to it reads as one life."""

    def __init__(self):
        super().__init__()
        self.attempt = Attempt()
        self.path = [CallState.WAITING]

    @rule(wish=st.sampled_from(CallState))
    def step(self, wish):
        with contextlib.suppress(IllegalTransition):
            self.attempt = self.attempt.transition(wish)
            self.path.append(wish)

    @invariant()
    def it_never_lives_twice(self):
        assert len(set(self.path)) == len(self.path)
        assert not any(state.terminal for state in self.path[:-1])
        assert CallState.RUNNING not in self.path or CallState.DENIED not in self.path
        assert CallState.COMPLETED not in self.path or CallState.RUNNING in self.path


Lives.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
test_a_call_lives_once = Lives.TestCase


def test_a_result_that_is_fed_ends_as_completed_and_a_denial_as_denied():
    ran = Attempt().transition(CallState.QUEUED).transition(CallState.RUNNING).transition(CallState.FEEDING)
    assert ran.transition(CallState.COMPLETED).state is CallState.COMPLETED
    with pytest.raises(IllegalTransition, match="ran cannot go from feeding_tool_result to denied"):
        ran.transition(CallState.DENIED)
    denied = Attempt().transition(CallState.FEEDING)
    assert denied.transition(CallState.DENIED).state is CallState.DENIED
    with pytest.raises(IllegalTransition, match="did not run cannot go from feeding_tool_result to completed"):
        denied.transition(CallState.COMPLETED)
