from __future__ import annotations

import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from codesdk.domain.events import Event, EventType, RuntimeInfo, Trace
from codesdk.domain.invariants import Invariant, InvariantChecker, first_violation

CALL = ("requested", "policy_evaluated", "approved", "started", "output.delta", "output.completed", "completed")


def event(seq, type_, *, task=None, session="ses_1", **payload):
    return Event(
        seq=seq,
        time="2026-01-01T00:00:00.000Z",
        type=type_,
        trace=Trace(session_id=session, task_id=task),
        runtime=RuntimeInfo(name="mcp-client"),
        payload=payload,
    )


def log(*steps):
    """Events from words: `created`, `t1 started`, `t1 c1.1 approved`, `c1 requested`, `sandbox.started` …"""
    return [_event(seq, step.split()) for seq, step in enumerate(steps, 1)]


def _event(seq, words):
    *of, what = words
    task = next((word for word in of if word.startswith("t")), None)
    call = next((word for word in of if word.startswith("c")), None)
    if call is not None:
        name, _, attempt = call.partition(".")
        kind = f"tool.{what}" if what.startswith("output") else f"tool.call.{what}"
        identity = {"tool_call_id": name, "attempt": int(attempt or 1), "input_hash": f"sha256:{name}"}
        return event(seq, kind, task=task, **identity)
    if what == "created":
        return event(seq, "session.created")
    return event(seq, what if "." in what else f"task.{what}", task=task)


def test_a_session_of_an_mcp_client_holds():
    calls = [f"c{number} {step}" for number in (1, 2) for step in CALL]
    assert (
        first_violation(log("created", "sandbox.started", *calls, "c3 requested", "c3 policy_evaluated", "c3 denied"))
        is None
    )


def test_parallel_calls_of_a_task_hold_in_any_mixture():
    steps = ["t1 c1 requested", "t1 c2 requested", "t1 c2 approved", "t1 c1 approved", "t1 c1 started", "t1 c2 started"]
    steps += ["t1 c2 completed", "t1 model.output.completed", "t1 c1 output.delta", "t1 c1 completed"]
    assert first_violation(log("created", "t1 started", *steps, "t1 completed", "t2 started", "t2 stopped")) is None


def test_a_retry_of_a_lost_call_is_another_attempt():
    first = [f"c1 {step}" for step in ("requested", "approved", "started", "completed")]
    assert first_violation(log("created", *first, *(f"c1.2 {step}" for step in ("requested", "denied")))) is None


def test_what_has_not_ended_yet_breaks_nothing():
    assert first_violation(log("created", "t1 started", "t1 c1 requested", "t1 c1 approved", "t1 c1 started")) is None
    assert first_violation([]) is None


def test_an_unknown_type_of_ours_breaks_nothing():
    assert (
        first_violation(log("created", "extension.ours.done", "t1 started", "t1 failover.switched", "t1 failed"))
        is None
    )


@pytest.mark.parametrize(
    ("steps", "rule_", "seq"),
    [
        (["c1 requested"], Invariant.CREATED_FIRST, 1),
        (["created", "created"], Invariant.CREATED_FIRST, 2),
        (["created", "started"], Invariant.TASK_IS_NAMED, 2),
        (["created", "failed"], Invariant.TASK_IS_NAMED, 2),
        (["created", "t1 model.input"], Invariant.TASK_STARTS_FIRST, 2),
        (["created", "t1 c1 requested"], Invariant.TASK_STARTS_FIRST, 2),
        (["created", "t1 completed"], Invariant.TASK_STARTS_FIRST, 2),
        (["created", "t1 started", "t1 started"], Invariant.TASK_STARTS_FIRST, 3),
        (["created", "t1 started", "t1 completed", "t1 completed"], Invariant.TASK_ENDS_LAST, 4),
        (["created", "t1 started", "t1 completed", "t1 stopped"], Invariant.TASK_ENDS_LAST, 4),
        (["created", "t1 started", "t1 failed", "t1 usage.reported"], Invariant.TASK_ENDS_LAST, 4),
        (["created", "t1 started", "t2 started"], Invariant.ONE_ACTIVE_TASK, 3),
        (["created", "t1 started", "t1 c1 requested", "t1 completed"], Invariant.NOTHING_LEFT_OPEN, 4),
        (["created", "c1 policy_evaluated"], Invariant.REQUESTED_FIRST, 2),
        (["created", "c1 approved"], Invariant.REQUESTED_FIRST, 2),
        (["created", "c1 output.delta"], Invariant.REQUESTED_FIRST, 2),
        (["created", "c1 requested", "c1 requested"], Invariant.REQUESTED_FIRST, 3),
        (["created", "c1.2 requested"], Invariant.ATTEMPTS_IN_ORDER, 2),
        (["created", "c1 requested", "c1.2 requested"], Invariant.ATTEMPTS_IN_ORDER, 3),
        (["created", "c1 requested", "c1 denied", "c1.3 requested"], Invariant.ATTEMPTS_IN_ORDER, 4),
        (["created", "c1 requested", "c1 approved", "c1 approved"], Invariant.ONE_DECISION, 4),
        (["created", "c1 requested", "c1 approved", "c1 denied"], Invariant.ONE_DECISION, 4),
        (["created", "c1 requested", "c1 approved", "c1 policy_evaluated"], Invariant.ONE_DECISION, 4),
        (["created", "c1 requested", "c1 denied", "c1 denied"], Invariant.NOTHING_AFTER_DENIAL, 4),
        (["created", "c1 requested", "c1 denied", "c1 started"], Invariant.NOTHING_AFTER_DENIAL, 4),
        (["created", "c1 requested", "c1 denied", "c1 completed"], Invariant.NOTHING_AFTER_DENIAL, 4),
        (["created", "c1 requested", "c1 started"], Invariant.STARTED_ONCE, 3),
        (["created", "c1 requested", "c1 approved", "c1 started", "c1 started"], Invariant.STARTED_ONCE, 5),
        (["created", "c1 requested", "c1 approved", "c1 output.delta"], Invariant.OUTPUT_WHILE_RUNNING, 4),
        (["created", "c1 requested", "c1 approved", "c1 completed"], Invariant.COMPLETED_ONCE, 4),
        (["created", *(f"c1 {s}" for s in CALL), "c1 completed"], Invariant.COMPLETED_ONCE, 9),
        (["created", *(f"c1 {s}" for s in CALL), "c1 output.delta"], Invariant.COMPLETED_ONCE, 9),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else str(value),
)
def test_the_first_violation_is_named_with_its_event(steps, rule_, seq):
    found = first_violation(log(*steps))
    assert found is not None
    assert (found.rule, found.seq) == (rule_, seq)
    assert found.message.startswith(f"Event {seq} (")


def test_a_gap_another_session_and_another_input_are_found():
    first, second = log("created", "c1 requested")
    assert first_violation([first, second.model_copy(update={"seq": 3})]).rule is Invariant.SEQ_IS_DENSE
    assert first_violation([first, event(2, "sandbox.started", session="ses_2")]).rule is Invariant.ONE_SESSION
    other = event(3, "tool.call.denied", tool_call_id="c1", attempt=1, input_hash="sha256:other")
    assert first_violation([first, second, other]).rule is Invariant.INPUT_IS_THE_SAME
    assert (
        first_violation([first, event(2, "tool.call.requested", tool_call_id="c1")]).rule is Invariant.CALL_HAS_IDENTITY
    )


ENDS = ("completed", "failed", "stopped")
# An attempt's way, written once more by hand: what may follow what was said last.
FOLLOWS = {
    "requested": {"policy_evaluated", "approved", "denied"},
    "policy_evaluated": {"policy_evaluated", "approved", "denied"},
    "approved": {"started"},
    "started": {"output.delta", "output.completed", "completed"},
    "output.delta": {"output.delta", "output.completed", "completed"},
    "output.completed": {"output.delta", "output.completed", "completed"},
    "completed": set(),
    "denied": set(),
}


class Logs(RuleBasedStateMachine):
    """Any sequence of events: the ledger and a naive reading of the rules agree at each step."""

    def __init__(self):
        super().__init__()
        self.ledger = InvariantChecker()
        self.seq = 1
        assert self.ledger.add(event(1, "session.created")) is None
        self.said: dict[tuple[str, int], list[str]] = {}
        self.task_of: dict[tuple[str, int], str | None] = {}
        self.tasks: dict[str, str] = {}

    def feed(self, lawful, made):
        ledger = self.ledger if lawful else copy.deepcopy(self.ledger)
        assert (ledger.add(made) is None) is lawful
        self.seq += lawful

    def task_lawful(self, task):
        return task is None or self.tasks.get(task) == "running"

    @rule(
        call=st.sampled_from("ab"),
        attempt=st.sampled_from([1, 1, 2]),
        what=st.sampled_from(list(FOLLOWS)),
        task=st.sampled_from([None, "t1", "t2"]),
    )
    def call_event(self, call, attempt, what, task):
        key, said = (call, attempt), self.said.get((call, attempt))
        lawful = self.task_lawful(task)
        if what == "requested":
            before = self.said.get((call, attempt - 1), ["completed" if attempt == 1 else "requested"])
            lawful = lawful and said is None and before[-1] in ("completed", "denied")
        else:
            lawful = lawful and said is not None and what in FOLLOWS[said[-1]]
        prefix = "tool" if what.startswith("output") else "tool.call"
        identity = {"tool_call_id": call, "attempt": attempt, "input_hash": "h"}
        self.feed(lawful, event(self.seq + 1, f"{prefix}.{what}", task=task, **identity))
        if lawful:
            self.said.setdefault(key, []).append(what)
            if what == "requested":
                self.task_of[key] = task

    @rule(task=st.sampled_from(["t1", "t2"]), what=st.sampled_from(["started", *ENDS]))
    def task_event(self, task, what):
        if what == "started":
            lawful = task not in self.tasks and "running" not in self.tasks.values()
        else:
            open_calls = [
                k for k, of in self.task_of.items() if of == task and self.said[k][-1] not in ("completed", "denied")
            ]
            lawful = self.task_lawful(task) and not open_calls
        self.feed(lawful, event(self.seq + 1, f"task.{what}", task=task))
        if lawful:
            self.tasks[task] = "running" if what == "started" else what

    @rule(
        task=st.sampled_from([None, "t1"]),
        kind=st.sampled_from(["model.output.delta", "sandbox.started", "extension.x"]),
    )
    def other_event(self, task, kind):
        self.feed(self.task_lawful(task), event(self.seq + 1, kind, task=task))


Logs.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
test_ledger_and_reference_agree_on_every_log = Logs.TestCase


def test_every_type_of_a_call_has_a_place_in_the_machine():
    of_calls = [kind for kind in EventType if kind.startswith("tool.")]
    assert len(of_calls) == len(FOLLOWS)
    for kind in of_calls:
        made = event(2, kind, tool_call_id="c1", attempt=1, input_hash="h")
        assert (first_violation([*log("created"), made]) is None) is (kind is EventType.CALL_REQUESTED)
