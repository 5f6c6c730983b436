from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.ids import HostId, SandboxId, SessionId, TenantId
from codesdk.sandbox.port import ExecRequest
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records.store import IdleState, SandboxRow, SandboxState, profile_text
from codesdk.worker.sandboxes.idle_reaper import IdleAction, IdleReaper, due_action
from codesdk.worker.sandboxes.registry import SandboxEnded
from stage import wait_for

PROFILE = Profile()


def resting(state=SandboxState.READY, *, ready_at=0.0, idle_since=0.0, awaits=False, **limits):
    row = SandboxRow(
        id=SandboxId("sbx"),
        session_id=SessionId("ses"),
        host_id=HostId("hst"),
        state=state,
        tool_uid=200_000,
        image="sha256:0",
        profile=profile_text(Profile(**limits)),
        generation=None,
        tenant_id=TenantId("ten"),
        seed_artifact=None,
        principal_id="prn",
        permission_mode="auto",
        runtime="mcp-client",
    )
    return IdleState(row=row, ready_at=ready_at, idle_since=idle_since, awaits_person=awaits)


@given(st.floats(0, 1e9), st.sampled_from([SandboxState.READY, SandboxState.PAUSED]), st.booleans())
def test_what_runs_is_neither_paused_nor_closed_for_idleness(now, state, awaits):
    assert due_action(resting(state, idle_since=None, awaits=awaits, lifetime_s=0), now) is IdleAction.NOTHING


@given(st.floats(0, 1e9))
def test_zero_is_never(now):
    assert due_action(resting(pause_after_s=0, idle_s=0, lifetime_s=0), now) is IdleAction.NOTHING


def test_the_verdicts_follow_each_other_in_time():
    limits = {"pause_after_s": 10.0, "idle_s": 100.0, "lifetime_s": 1000.0}
    found = [due_action(resting(**limits), now) for now in (9.9, 10.0, 99.9, 100.0, 1000.0)]
    assert found == [IdleAction.NOTHING, IdleAction.PAUSE, IdleAction.PAUSE, IdleAction.IDLE, IdleAction.TOO_OLD]


def test_a_paused_one_is_not_paused_again():
    assert due_action(resting(SandboxState.PAUSED), PROFILE.pause_after_s) is IdleAction.NOTHING


def test_one_that_waits_for_a_person_is_paused_and_not_closed():
    assert due_action(resting(awaits=True), PROFILE.idle_s) is IdleAction.PAUSE


def test_age_counts_whatever_runs():
    assert due_action(resting(idle_since=None), PROFILE.lifetime_s) is IdleAction.TOO_OLD


@pytest.fixture
def rest(stage, crew):
    crew.sandbox_registry.reconcile()
    return IdleReaper(
        sandbox_registry=crew.sandbox_registry,
        sessions=stage.sessions,
        host=crew.host,
        database=stage.database,
        clock=stage.clock,
    )


def state(stage):
    return stage.sql("SELECT state FROM sandboxes WHERE session_id = :s", s=stage.session.id)[0].state


def run_a_call(stage, crew, *, ended_ago=0.0):
    """One that ended so many seconds ago, on the stage's clock."""
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    crew.dispatcher._serve()
    at = stage.clock.now().timestamp() - ended_ago
    stage.sql("UPDATE tool_calls SET finished_at = :at", at=at)


def test_an_idle_sandbox_is_paused_and_the_next_call_runs_in_it(stage, crew, rest):
    before = crew.sandbox_registry.ready(stage.session.id)
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    assert state(stage) == "paused"
    assert crew.sandboxes._states[before.owner].paused
    assert crew.sandbox_registry.live(stage.session.id) is None
    assert crew.sandbox_registry.ready(stage.session.id) is before
    assert state(stage) == "ready"
    assert not crew.sandboxes._states[before.owner].paused


def test_another_worker_lets_a_paused_one_go_on(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    crew.sandbox_registry.close()
    later = crew.next()
    run_a_call(stage, later)
    assert state(stage) == "ready"
    assert stage.types()[-1] == "tool.call.completed"


def test_the_clock_starts_again_when_a_call_ends(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    run_a_call(stage, crew, ended_ago=1.0)
    rest.look()
    assert state(stage) == "ready"
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    assert state(stage) == "paused"


def test_a_running_call_keeps_its_sandbox_awake_however_long(stage, crew, rest):
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.sql("UPDATE tool_calls SET state = 'running_tool'")
    stage.clock.advance(PROFILE.idle_s)
    rest.look()
    assert state(stage) == "ready"


def start_in_background(stage, crew, line="hold"):
    crew.sandbox_registry.ready(stage.session.id).processes.start(
        ExecRequest(call="server", argv=(line,), timeout_s=60)
    )


@pytest.mark.parametrize("limit", ["pause_after_s", "idle_s"])
def test_a_process_in_the_background_keeps_its_sandbox_awake_and_its_session_open(stage, crew, rest, limit):
    start_in_background(stage, crew)
    for _ in range(3):
        stage.clock.advance(getattr(PROFILE, limit))
        rest.look()
    assert state(stage) == "ready"
    assert stage.sessions.find(stage.principal.tenant_id, stage.session.id).state == "open"


def test_the_clock_starts_again_when_a_process_in_the_background_was_last_seen(stage, crew, rest):
    start_in_background(stage, crew)
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    crew.hold.set()
    sandbox = crew.sandbox_registry.ready(stage.session.id)
    wait_for(lambda: sandbox.processes.list()[0].result, "the end of the process")
    stage.clock.advance(PROFILE.pause_after_s - 1)
    rest.look()
    assert state(stage) == "ready"
    stage.clock.advance(1)
    rest.look()
    assert state(stage) == "paused"


def test_the_next_worker_finds_what_runs_in_the_background_too(stage, crew, rest):
    start_in_background(stage, crew)
    crew.sandbox_registry.close()
    later = crew.next()
    stage.clock.advance(PROFILE.idle_s)
    IdleReaper(
        sandbox_registry=later.sandbox_registry,
        sessions=stage.sessions,
        host=later.host,
        database=stage.database,
        clock=stage.clock,
    ).look()
    assert state(stage) == "ready"


def test_a_call_that_comes_between_look_and_pause_wins(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    pause = crew.sandbox_registry.pause

    def called_meanwhile(row, idle_before):
        stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
        return pause(row, idle_before)

    crew.sandbox_registry.pause = called_meanwhile
    rest.look()
    assert state(stage) == "ready"


def test_a_sandbox_idle_for_too_long_ends_with_its_session_and_says_why(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    stage.clock.advance(PROFILE.idle_s)
    rest.look()
    assert stage.sessions.find(stage.principal.tenant_id, stage.session.id).state == "closed"
    closed = next(event for event in stage.events() if event.type == "sandbox.session_closed")
    assert closed.payload == {"reason": "idle"}
    crew.sandbox_registry.reconcile()
    assert crew.sandboxes.living == ()
    with pytest.raises(SandboxEnded):
        crew.sandbox_registry.ready(stage.session.id)


def test_a_call_that_comes_between_look_and_close_wins(stage, crew, rest):
    stage.clock.advance(PROFILE.idle_s)
    close_if = stage.sessions.close_if

    def called_meanwhile(*args):
        stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
        return close_if(*args)

    stage.sessions.close_if = called_meanwhile
    rest.look()
    assert stage.sessions.find(stage.principal.tenant_id, stage.session.id).state == "open"


def test_a_session_ends_at_its_sandboxs_age(stage, crew, rest):
    stage.clock.advance(PROFILE.lifetime_s)
    run_a_call(stage, crew)
    rest.look()
    assert stage.events()[-1].payload == {"reason": "lifetime"}


def test_a_paused_sandbox_can_be_closed(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    crew.sandbox_registry.reconcile()
    assert state(stage) == "gone"
    assert crew.sandboxes.living == ()


def test_a_close_wins_over_a_resume(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    resume = crew.sandboxes.resume

    def closed_meanwhile(owner):
        resume(owner)
        stage.sessions.close(stage.principal.tenant_id, stage.session.id)

    crew.sandboxes.resume = closed_meanwhile
    with pytest.raises(SandboxEnded):
        crew.sandbox_registry.ready(stage.session.id)
    crew.sandbox_registry.reconcile()
    assert state(stage) == "gone"


def test_a_paused_sandbox_that_died_ends_its_session_clearly(stage, crew, rest):
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    (owner,) = crew.sandboxes.living
    crew.sandboxes.crash(owner, keeps=False)
    with pytest.raises(SandboxEnded, match="gone"):
        crew.sandbox_registry.ready(stage.session.id)
    assert state(stage) == "closing"


def test_one_that_died_while_nobody_asked_it_is_found_when_it_is_due_and_the_record_says_why(stage, crew, rest):
    (owner,) = crew.sandboxes.living
    crew.sandboxes.crash(owner, "the Docker engine was restarted and ended it", keeps=False)
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    assert state(stage) == "closing"
    crew.sandbox_registry.reconcile()
    assert state(stage) == "gone"
    assert stage.events()[-1].payload["reason"] == "the Docker engine was restarted and ended it"


def test_after_a_call_whose_sandbox_went_away_the_sandbox_is_closed_with_its_reason(stage, crew, rest):
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    (owner,) = crew.sandboxes.living
    crew.sandboxes.crash(owner, "its container is exited (exit code 137)", keeps=False)
    crew.dispatcher._serve()
    assert stage.types()[-1] == "tool.call.completed"
    assert state(stage) == "closing"
    crew.sandbox_registry.reconcile()
    stopped = stage.events()[-1]
    assert (stopped.type, stopped.payload["reason"]) == ("sandbox.stopped", "its container is exited (exit code 137)")


def test_one_that_cannot_be_paused_does_not_keep_the_others_awake(stage, crew, rest):
    other = stage.open_session()
    crew.sandbox_registry.ready(other.session_id)
    first, _ = sorted(crew.sandboxes.living)
    crew.sandboxes._states[first].gone = "it crashed"
    stage.clock.advance(PROFILE.pause_after_s)
    rest.look()
    paused = [owner for owner, found in crew.sandboxes._states.items() if found.paused]
    assert len(paused) == 1
