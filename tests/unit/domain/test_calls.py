from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codesdk.domain.calls import TRANSITIONS, CallState, IllegalTransition, check_transition

# The contract's machine, written once more by hand.
LAWFUL = {
    ("waiting_for_tool_decision", "queued"),
    ("waiting_for_tool_decision", "denied"),
    ("queued", "running_tool"),
    ("queued", "denied"),
    ("running_tool", "completed"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CallState, CallState)))
def test_exactly_the_lawful_steps_pass(before, after):
    if (before.value, after.value) in LAWFUL:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match="cannot go"):
            check_transition(before, after)


@pytest.mark.parametrize("state", CallState)
def test_terminal_is_where_nothing_follows(state):
    assert state.terminal == (not TRANSITIONS[state])


class Lives(RuleBasedStateMachine):
    """A call under any sequence of wishes: what happened to it reads as one life."""

    def __init__(self):
        super().__init__()
        self.state = CallState.WAITING
        self.path = [CallState.WAITING]

    @rule(wish=st.sampled_from(CallState))
    def step(self, wish):
        try:
            check_transition(self.state, wish)
        except IllegalTransition:
            return
        self.state = wish
        self.path.append(wish)

    @invariant()
    def it_never_lives_twice(self):
        assert len(set(self.path)) == len(self.path)
        assert not any(state.terminal for state in self.path[:-1])
        assert CallState.RUNNING not in self.path or CallState.DENIED not in self.path
        assert CallState.COMPLETED not in self.path or CallState.RUNNING in self.path


Lives.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
test_a_call_lives_once = Lives.TestCase
