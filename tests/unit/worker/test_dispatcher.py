from __future__ import annotations

import threading
import time

import pytest

from codesdk.domain.calls import CallState, DenialCode
from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.port.faults import EngineUnavailable
from codesdk.toolcalls.records.call_record import Denied, Finished
from codesdk.toolcalls.run.error_mapping import CallReleased
from codesdk.worker.calls.dispatcher import spare_threads
from codesdk.worker.ownership.registration import WorkerRunning, lock_engine
from stage import POLICY, bundle, stored_call, wait_for

THREADS = 4
"""As the crew has them."""


def submit(stage, name="workspace.exec", given=None, subject=None):
    return stage.pipeline.submit(name, given or {"command": "x"}, subject or stage.subject).identity.tool_call_id


def ended(stage, call):
    found = wait_for(lambda: (o := stage.find(call)) and isinstance(o, Finished | Denied) and o, f"{call} to end")
    return found.result if isinstance(found, Finished) else found


def test_a_wake_up_runs_the_call(stage, crew):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    assert ended(stage, submit(stage)).structured["stdout"] == "x"


def test_a_poll_finds_what_no_wake_up_told_of(stage, crew):
    call = submit(stage)
    crew.dispatcher.poll()
    assert ended(stage, call).structured["stdout"] == "x"


def test_a_sessions_sandbox_is_made_before_its_first_call(stage, crew):
    crew.dispatcher.wake(stage.session.id)
    wait_for(lambda: crew.sandboxes.living, "the sandbox")


def test_serial_calls_follow_each_other_in_order(stage, crew):
    calls = [submit(stage, given={"command": f"c{number}"}) for number in range(5)]
    crew.dispatcher.poll()
    assert [ended(stage, call).structured["stdout"] for call in calls] == [f"c{number}" for number in range(5)]
    assert [run[1] for run in crew.sandboxes.runs] == calls
    starts_and_ends = [type_ for type_ in stage.types() if type_ in ("tool.call.started", "tool.call.completed")]
    assert starts_and_ends == ["tool.call.started", "tool.call.completed"] * 5


def test_a_tenant_with_a_long_call_on_each_thread_leaves_one_for_another(stage, crew):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    long = [submit(stage, given={"command": "hold"}, subject=stage.open_session()) for _ in range(3 * THREADS)]
    wait_for(lambda: len(crew.sandboxes.runs) == THREADS, "as many of them as may")
    other, _ = stage.enroll("other", "dev")
    assert ended(stage, submit(stage, subject=stage.open_session(other))).structured["stdout"] == "x"
    assert len(crew.sandboxes.runs) == THREADS + 1
    crew.hold.set()
    assert {ended(stage, call).structured["stdout"] for call in long} == {"held"}


def test_a_running_call_is_cancelled(stage, crew):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    call = submit(stage, given={"command": "hold"})
    wait_for(lambda: crew.sandboxes.runs, "the command")
    assert stage.cancel(call, "enough")
    assert ended(stage, call).code == "CANCELLED"
    assert stage.types()[-1] == "tool.call.completed"


def test_a_cancel_is_heard_while_an_engine_hangs(stage, crew):
    call = submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    stuck, make = threading.Event(), crew.sandboxes.open
    crew.sandboxes.open = lambda spec: (stuck.wait(20), make(spec))[1]
    for _ in range(3):
        crew.dispatcher.wake(stage.open_session().session_id)
    try:
        stage.cancel(call, "enough")
        crew.dispatcher.poll()
        assert ended(stage, call).code == "CANCELLED"
    finally:
        stuck.set()


@pytest.mark.parametrize("broken", ["hangs", "fails"])
def test_a_cancel_is_heard_while_another_sandbox_does_not_hear_its_own(stage, crew, broken):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    deaf, stuck = submit(stage, given={"command": "hold"}), threading.Event()
    wait_for(lambda: crew.sandboxes.runs, "the command")

    def cancel(_call, _attempt):
        if broken == "hangs":
            stuck.wait(20)
        raise EngineUnavailable("It does not answer.")

    crew.sandbox_registry.live(stage.session.id).cancel = cancel
    call = submit(stage, given={"command": "hold"}, subject=stage.open_session())
    wait_for(lambda: len(crew.sandboxes.runs) == 2, "the other command")
    try:
        stage.cancel(deaf, "enough")
        stage.cancel(call, "enough")
        crew.dispatcher.poll()
        assert ended(stage, call).code == "CANCELLED"
    finally:
        stuck.set()


def test_a_command_that_waits_for_an_engine_which_is_away_does_not_begin_once_it_is_cancelled(stage, crew):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    crew.sandbox_registry.ready(stage.session.id)
    crew.sandboxes.engine_down = True
    call = submit(stage)
    wait_for(lambda: stored_call(stage.database, call).state is CallState.RUNNING, "the claim")
    assert stage.cancel(call, "enough")
    crew.dispatcher.poll()
    result = ended(stage, call)
    assert (result.code, result.text) == ("NOT_BEGUN", "This call was not begun: meanwhile it was cancelled.")
    assert stage.types()[-2:] == ["tool.call.started", "tool.call.completed"]
    crew.sandboxes.engine_down = False
    assert ended(stage, submit(stage)).structured["stdout"] == "x", "and nothing is in doubt: it is not asked about"
    assert len(crew.sandboxes.runs) == 1


def test_a_command_that_a_successor_took_up_is_waited_for_though_it_is_cancelled_while_the_engine_is_away(stage, crew):
    call = submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    crew.dispatcher.drain(0.0)
    crew.sandbox_registry.close()
    later = crew.next()
    later.sandbox_registry.ready(stage.session.id)
    crew.sandboxes.engine_down = True
    taking = threading.Thread(target=later.recovery.take_up)
    taking.start()
    try:
        wait_for(lambda: stage.sql("SELECT 1 FROM tool_calls WHERE generation = 2"), "the adoption")
        assert stage.cancel(call, "enough")
        for _ in range(3):
            later.dispatcher.poll()
        crew.hold.set()
        assert stored_call(stage.database, call).state is CallState.RUNNING
    finally:
        crew.sandboxes.engine_down = False
        taking.join(20)
        later.close()
    assert ended(stage, call).structured["stdout"] == "held"
    assert len(crew.sandboxes.runs) == 1


def test_a_cancel_of_one_call_spares_the_others(stage, crew):
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    other = stage.open_session()
    one, two = submit(stage, given={"command": "hold"}), submit(stage, given={"command": "hold"}, subject=other)
    wait_for(lambda: len(crew.sandboxes.runs) == 2, "both commands")
    stage.cancel(one, "enough")
    assert ended(stage, one).code == "CANCELLED"
    crew.hold.set()
    assert not ended(stage, two).is_error


class Slow:
    """A file operation of every fake sandbox that begins, and goes on when it is told to."""

    def __init__(self, monkeypatch, operation, meanwhile=lambda: None):
        self.under_way, self.go_on = threading.Event(), threading.Event()
        act = getattr(FakeFiles, operation)

        def slowly(*given, **more):
            self.under_way.set()
            until = time.monotonic() + 20
            while not self.go_on.wait(0.01):
                meanwhile()
                assert time.monotonic() < until
            return act(*given, **more)

        monkeypatch.setattr(FakeFiles, operation, slowly)


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("read", ("workspace.read", {"path": "a"})),
        ("list", ("workspace.list", {"path": "."})),
    ],
)
def test_the_cancel_of_a_file_operation_that_goes_on_disturbs_nobody(stage, crew, monkeypatch, operation, call):
    crew.sandbox_registry.ready(stage.session.id).files.put("a", b"old")
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    slow = Slow(monkeypatch, operation)
    one = submit(stage, *call)
    try:
        assert slow.under_way.wait(20)
        assert stage.cancel(one, "enough")
        assert ended(stage, submit(stage, subject=stage.open_session())).structured["stdout"] == "x"
        assert stored_call(stage.database, one).state is CallState.RUNNING
    finally:
        slow.go_on.set()
    assert not ended(stage, one).is_error
    assert stage.types()[-1] == "tool.call.completed"


def test_a_reading_call_whose_sandbox_is_slow_ends_as_cancelled_and_leaves_no_doubt(stage, crew, monkeypatch):
    sandbox, calls = crew.sandbox_registry.ready(stage.session.id), []
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    # As a connection to a runner does while it waits.
    slow = Slow(
        monkeypatch, "read", lambda: [sandbox._cancelled_calls.check((call, 1), was_sent=True) for call in calls]
    )
    calls.append(submit(stage, "workspace.read", {"path": "a"}))
    assert slow.under_way.wait(20)
    assert stage.cancel(calls[0], "enough")
    result = ended(stage, calls[0])
    assert (result.code, "was cancelled while it read, and nothing was changed" in result.text) == ("CANCELLED", True)
    assert stage.sql("SELECT 1 FROM tool_calls WHERE doubtful") == []
    assert stage.types()[-1] == "tool.call.completed"


@pytest.mark.parametrize(("operation", "end"), [("stat", ("NOT_BEGUN", b"old")), ("write", (None, b"new"))])
def test_a_write_is_cancelled_before_it_is_asked_for_and_ends_as_it_did_after_that(
    stage, crew, monkeypatch, operation, end
):
    """Its tool looks at the path, and then writes."""
    writes = POLICY.replace(
        "effect: ask, tool: workspace.write, approval: {timeout: 10m}", "effect: allow, tool: workspace.write"
    )
    stage.bundle = bundle(stage.root / "writes", writes, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    sandbox = crew.sandbox_registry.ready(stage.session.id)
    sandbox.files.put("a", b"old")
    stage.wakeups.bind(stage.host.id, crew.dispatcher.wake)
    slow = Slow(monkeypatch, operation)
    call = submit(stage, "workspace.write", {"path": "a", "content": "new"})
    try:
        assert slow.under_way.wait(20)
        assert stage.cancel(call, "enough")
        wait_for(lambda: (call, 1) in sandbox._cancelled_calls._calls, "the cancel to reach the sandbox")
    finally:
        slow.go_on.set()
    assert (ended(stage, call).code, sandbox.files.read("a").data) == end
    assert stage.sql("SELECT 1 FROM tool_calls WHERE doubtful") == []


def test_a_cancel_waits_for_no_crowd_of_looks(stage, crew):
    call = submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    began, go_on, looks = threading.Event(), threading.Event(), []

    def look(*_, **__):
        looks.append(None)
        began.set()
        assert go_on.wait(20)

    crew.dispatcher._fingerprints.look = look
    crew.dispatcher.wake(stage.session.id)
    assert began.wait(20)
    stage.cancel(call, "enough")
    for _ in range(1000):
        crew.dispatcher.wake(stage.session.id)
    go_on.set()
    assert ended(stage, call).code == "CANCELLED"
    wait_for(crew.dispatcher._control._work_queue.empty, "the looks")
    assert len(looks) <= 3, "a thousand wake-ups are one look more, and one that a poll may ask for"


def test_expiry_needs_no_wake_up(stage, crew):
    call = submit(stage, "workspace.write", {"path": "a", "content": "b"})
    stage.sql("UPDATE approvals SET expires_at = 1")
    crew.dispatcher.poll()
    assert ended(stage, call).code is DenialCode.EXPIRED


def test_a_database_that_is_away_stops_nothing_for_good(stage, crew):
    there = stage.database.reader
    stage.database.reader = type(stage.database)(f"sqlite:///{stage.root}/none/x.db").reader
    crew.dispatcher.poll()
    threading.Event().wait(0.05)
    stage.database.reader = there
    call = submit(stage)
    crew.dispatcher.poll()
    assert not ended(stage, call).is_error


def test_a_crashed_sandbox_ends_its_calls_and_the_next_hears_so(stage, crew):
    first = submit(stage)
    crew.dispatcher.poll()
    ended(stage, first)
    crew.sandboxes.crash(crew.sandboxes.living[0], keeps=False)
    codes = []
    for line in ("y", "z"):
        call = submit(stage, given={"command": line})
        crew.dispatcher.poll()
        codes.append(ended(stage, call).code)
    assert codes == ["SANDBOX_GONE", "SANDBOX_ENDED"]


def test_draining_waits_for_what_runs_and_starts_nothing_more(stage, crew):
    running = submit(stage, given={"command": "hold"})
    queued = submit(stage, given={"command": "x"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    draining = threading.Thread(target=crew.dispatcher.drain, args=(10.0,))
    draining.start()
    threading.Event().wait(0.02)
    crew.hold.set()
    draining.join(10)
    assert not draining.is_alive()
    assert ended(stage, running).structured["stdout"] == "held"
    assert not isinstance(stage.find(queued), Finished)
    crew.dispatcher.wake(queued)


def test_a_cancel_is_heard_while_the_worker_drains(stage, crew):
    call = submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    draining = threading.Thread(target=crew.dispatcher.drain, args=(30.0,))
    draining.start()
    wait_for(crew.dispatcher._draining.is_set, "the drain to begin")
    stage.cancel(call, "enough")
    crew.dispatcher.wake(stage.session.id)
    draining.join(10)
    assert not draining.is_alive()
    assert ended(stage, call).code == "CANCELLED"


def test_a_call_that_a_leaving_worker_has_not_begun_is_left_to_the_next_and_runs_there_once(stage, crew):
    call = submit(stage)
    claimed = stage.claims(generation=crew.host.generation).take()
    crew.dispatcher.drain(0.0)
    with pytest.raises(CallReleased):
        crew.execution.run(claimed, lambda: pytest.fail("its sandbox was opened"))
    assert (stored_call(stage.database, call).state, crew.sandboxes.runs) == (CallState.RUNNING, [])
    crew.next().recovery.take_up()
    assert ended(stage, call).structured["stdout"] == "x"
    assert len(crew.sandboxes.runs) == 1


def test_a_call_whose_time_is_over_is_handed_back_and_joined_by_the_next_worker(stage, crew):
    call = submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    crew.dispatcher.drain(0.01)
    crew.sandbox_registry.close()
    later = crew.next()
    joining = threading.Thread(target=later.recovery.take_up)
    joining.start()
    wait_for(lambda: stage.sql("SELECT 1 FROM tool_calls WHERE generation = 2"), "the adoption")
    crew.hold.set()
    joining.join(10)
    assert ended(stage, call).structured["stdout"] == "held"
    assert len(crew.sandboxes.runs) == 1
    assert stage.types().count("tool.call.completed") == 1


def test_what_another_worker_left_and_nobody_has_begun_here_is_not_begun_while_draining(stage, crew):
    started, hold = [], threading.Event()
    threads = THREADS + spare_threads(THREADS)
    for number in range(threads):
        crew.dispatcher.start(lambda number=number: (started.append(number), hold.wait(10)))
    wait_for(lambda: len(started) == threads, "all threads to be busy")
    crew.dispatcher.start(lambda: started.append("late"))
    crew.execution.abandon = hold.set  # when their time is over
    crew.dispatcher.drain(0.01)
    crew.dispatcher._calls.shutdown(wait=True)
    assert "late" not in started


def test_draining_has_a_deadline(stage, crew):
    submit(stage, given={"command": "hold"})
    crew.dispatcher.poll()
    wait_for(lambda: crew.sandboxes.runs, "the command")
    draining = threading.Thread(target=crew.dispatcher.drain, args=(0.05,))
    draining.start()
    draining.join(5)
    assert not draining.is_alive()


def test_waking_and_polling_after_the_drain_do_nothing(stage, crew):
    crew.dispatcher.drain(1.0)
    crew.dispatcher.wake(stage.session.id)
    crew.dispatcher.wake("call_x")
    crew.dispatcher.poll()
    crew.dispatcher.sweep()


def test_an_engine_has_one_worker(tmp_path):
    held = lock_engine(tmp_path / "worker.lock")
    with pytest.raises(WorkerRunning, match="already serves"):
        lock_engine(tmp_path / "worker.lock")
    held.close()
    lock_engine(tmp_path / "worker.lock").close()
