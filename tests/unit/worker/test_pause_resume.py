"""A session's sandbox is stopped and restarts with its workspace, despite faults in between."""

from __future__ import annotations

import pytest

from codesdk.sandbox.port import ExecRequest, FileWrite
from codesdk.sandbox.port.faults import EngineUnavailable, SandboxEnded, StopRefused
from codesdk.sandbox.records import store
from codesdk.sessions.session import SandboxBusy, SessionUnknown
from codesdk.worker.sandboxes.idle_reaper import IdleAction, due_action


class Site:
    """A session with a file in its workspace, and its worker."""

    def __init__(self, crew):
        self.crew, self.stage = crew, crew.stage
        self.subject = self.stage.open_session()
        self.session = self.subject.session_id
        crew.sandbox_registry.reconcile()
        self.owner = crew.sandbox_registry.ready(self.session).owner
        crew.sandbox_registry.ready(self.session).files.write((FileWrite(path="kept", content=b"kept"),))

    def stop(self):
        return self.stage.sessions.stop_sandbox(self.subject.tenant_id, self.session)

    def start(self):
        return self.stage.sessions.start_sandbox(self.subject.tenant_id, self.session)

    def see(self):
        self.crew.sandbox_registry.reconcile()

    def close(self):
        self.stage.sessions.close(self.subject.tenant_id, self.session)

    @property
    def state(self):
        return self.stage.sessions.sandbox(self.subject.tenant_id, self.session).state.value

    def told(self):
        return [kind for kind in self.stage.types(self.subject) if kind.startswith("sandbox.")]

    def kept(self, crew=None):
        return (crew or self.crew).sandbox_registry.ready(self.session).files.read("kept").data


@pytest.fixture
def site(crew):
    return Site(crew)


def test_a_stopped_sandbox_is_gone_but_for_its_workspace_and_the_next_call_brings_it_back(site):
    assert site.stop().state == "stopping"
    site.see()
    assert (site.state, site.crew.sandbox_registry.live(site.session)) == ("stopped", None)
    assert site.kept() == b"kept"
    assert site.state == "ready"
    assert site.told() == ["sandbox.started", "sandbox.halted", "sandbox.started"]


def test_it_is_started_when_somebody_asks_for_it(site):
    site.stop()
    site.see()
    assert site.start().state == "starting"
    site.see()
    assert (site.state, site.kept()) == ("ready", b"kept")


def test_a_start_before_the_stop_was_done_wins(site):
    site.stop()
    site.start()
    site.see()
    assert (site.state, site.kept()) == ("ready", b"kept")
    assert site.told() == ["sandbox.started"]


def test_a_start_while_it_is_being_stopped_brings_it_back(site, monkeypatch):
    end = site.crew.sandboxes.stop

    def stop(owner):
        assert site.start().state == "starting"
        end(owner)

    site.stop()
    with monkeypatch.context() as slow:
        slow.setattr(site.crew.sandboxes, "stop", stop)
        site.see()
    assert site.state == "starting"
    site.see()
    assert (site.state, site.kept()) == ("ready", b"kept")


def test_stopping_and_starting_twice_changes_nothing_more(site):
    site.start()
    assert site.state == "ready"
    site.stop()
    site.stop()
    site.see()
    site.stop()
    site.see()
    assert site.told() == ["sandbox.started", "sandbox.halted"]


def test_a_paused_sandbox_can_be_stopped(site):
    site.stage.clock.advance(1000)
    with site.stage.database.read() as connection:
        row = store.of_session(connection, site.session)
    assert site.crew.sandbox_registry.pause(row, site.stage.clock.now().timestamp())
    site.stop()
    site.see()
    assert (site.state, site.kept()) == ("stopped", b"kept")


def test_what_runs_in_the_background_is_asked_to_end_first(site):
    processes = site.crew.sandbox_registry.ready(site.session).processes
    processes.start(ExecRequest(call="prc_1", argv=("hold",)))
    run = site.crew.sandboxes._states[site.crew.sandbox_registry.ready(site.session).owner].runs["prc_1", 1]
    site.stop()
    site.see()
    assert run.cancelled.is_set()
    assert site.state == "stopped"


@pytest.mark.parametrize("claimed", [False, True])
def test_a_session_with_a_call_that_waits_or_runs_is_not_stopped(claimed, site):
    site.stage.pipeline.submit("workspace.exec", {"command": "x"}, site.subject)
    if claimed:
        assert site.stage.claims(generation=site.crew.host.generation).take()
    with pytest.raises(SandboxBusy):
        site.stop()
    assert site.state == "ready"


def test_a_call_that_is_claimed_before_the_worker_stops_keeps_its_sandbox(site):
    site.stop()
    site.stage.pipeline.submit("workspace.exec", {"command": "x"}, site.subject)
    claimed = site.stage.claims(generation=site.crew.host.generation).take()
    before = site.crew.sandbox_registry.live(site.session)
    site.see()
    assert (site.state, site.crew.sandbox_registry.live(site.session)) == ("ready", before)
    result = site.stage.execution().run(claimed, lambda: site.crew.sandbox_registry.ready(site.session))
    assert not result.is_error


def test_a_call_that_only_waits_its_turn_is_run_after_the_stop(site):
    site.stop()
    site.stage.pipeline.submit("workspace.exec", {"command": "x"}, site.subject)
    site.see()
    assert site.state == "stopped"
    claimed = site.stage.claims(generation=site.crew.host.generation).take()
    assert not site.stage.execution().run(claimed, lambda: site.crew.sandbox_registry.ready(site.session)).is_error
    assert site.kept() == b"kept"


def test_what_only_looks_does_not_bring_a_stopped_sandbox_back(site):
    before = site.crew.sandbox_registry.ready(site.session)
    site.stop()
    site.see()
    with pytest.raises(SandboxEnded, match="stopped"):
        site.crew.sandbox_registry.reach(site.session)
    site.crew.sandbox_registry.lose(site.session, before)
    assert site.state == "stopped"


def test_closing_wins_over_every_step(site):
    for steps in (
        (site.stop,),
        (site.stop, site.crew.sandbox_registry.reconcile),
        (site.stop, site.crew.sandbox_registry.reconcile, site.start),
    ):
        other = Site(site.crew)
        for step in steps:
            getattr(other, step.__name__)() if hasattr(other, step.__name__) else step()
        other.close()
        site.see()
        assert other.state == "gone"
        with pytest.raises(SandboxEnded):
            other.start()
        with pytest.raises(SandboxEnded):
            other.stop()
        assert other.owner not in site.crew.sandboxes.living


def test_a_session_that_is_closed_while_its_sandbox_starts_leaves_nothing(site, monkeypatch):
    site.stop()
    site.see()
    begin = site.crew.sandboxes.start

    def start(spec):
        made = begin(spec)
        site.close()
        return made

    monkeypatch.setattr(site.crew.sandboxes, "start", start)
    with pytest.raises(SandboxEnded):
        site.crew.sandbox_registry.ready(site.session)
    site.see()
    assert site.state == "gone"
    assert site.owner not in site.crew.sandboxes.living


def test_a_call_that_ran_when_the_worker_died_is_joined_and_not_run_again_whatever_was_asked_meanwhile(site):
    for ask in ((), (site.start,)):
        site.stop()
        site.stage.pipeline.submit("workspace.exec", {"command": "hold"}, site.subject)
        claimed = site.stage.claims(generation=site.crew.host.generation).take()
        identity = claimed.stored.identity
        sandbox = site.crew.sandbox_registry.ready(site.session)
        sandbox.processes.start(ExecRequest(call=identity.tool_call_id, attempt=identity.attempt, argv=("x", "hold")))
        for each in ask:
            each()
        later = site.crew.next()
        later.hold.set()
        site.crew.hold.set()
        later.sandbox_registry.reconcile()
        assert later.recovery.take_up() == 1
        assert site.state == "ready"
        assert [run for run in site.crew.sandboxes.runs if run[1] == identity.tool_call_id] == [
            (site.owner, identity.tool_call_id, identity.attempt)
        ]
        site.crew = later


@pytest.mark.parametrize("step", ["stop", "start"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_worker_that_dies_at_a_step_is_followed_by_one_that_does_it(step, side, site, monkeypatch):
    """The engine did it, or did not; the row does not say so."""
    if step == "start":
        site.stop()
        site.see()
        site.start()
    else:
        site.stop()
    if side == "after":
        monkeypatch.setattr(site.crew.sandbox_registry._stopper, "_move", _away)
    else:
        monkeypatch.setattr(site.crew.sandboxes, step, _away)
    site.see()
    assert site.state == {"stop": "halting", "start": "starting"}[step]
    monkeypatch.undo()
    later = site.crew.next()
    later.sandbox_registry.reconcile()
    assert site.state == {"stop": "stopped", "start": "ready"}[step]
    assert site.kept(later) == b"kept"
    later.close()


def _away(*_given, **_more):
    raise EngineUnavailable("unix:///test", "it is away")


def test_a_start_that_fails_is_told_and_tried_again_and_keeps_the_workspace(site, monkeypatch):
    site.stop()
    site.see()
    site.start()
    with monkeypatch.context() as broken:
        broken.setattr(site.crew.sandboxes, "start", _away)
        site.see()
    assert (site.state, site.told()[-1]) == ("starting", "sandbox.failed")
    site.stage.clock.advance(60)
    site.see()
    assert (site.state, site.kept()) == ("ready", b"kept")


def test_a_workspace_that_is_lost_ends_the_sandbox_and_is_said(site):
    site.stop()
    site.see()
    for owner in site.crew.sandboxes.living:
        site.crew.sandboxes.crash(owner, keeps=False)
    site.crew.sandboxes._stopped.clear()
    with pytest.raises(SandboxEnded, match="gone"):
        site.crew.sandbox_registry.ready(site.session)
    assert site.state == "closing"


def test_a_workspace_in_memory_is_not_stopped(site, monkeypatch):
    def refuse(owner):
        raise StopRefused(owner)

    site.stop()
    with monkeypatch.context() as refusing:
        refusing.setattr(site.crew.sandboxes, "stop", refuse)
        site.see()
    assert (site.state, site.told()[-1]) == ("ready", "sandbox.failed")
    assert site.kept() == b"kept"


def test_a_workspace_that_is_known_to_be_in_memory_is_refused_at_once(site):
    with site.stage.database.writer.begin() as connection:
        connection.exec_driver_sql("UPDATE sandboxes SET attestation = replace(attestation, '\"none\"', '\"tmpfs\"')")
    with pytest.raises(StopRefused):
        site.stop()


def test_a_foreign_session_has_no_sandbox_that_could_be_stopped(site):
    stranger, _ = site.stage.enroll("other", "dev")
    for ask in (site.stage.sessions.stop_sandbox, site.stage.sessions.start_sandbox, site.stage.sessions.sandbox):
        with pytest.raises(SessionUnknown):
            ask(stranger.tenant_id, site.session)


def test_a_sandbox_that_is_just_being_made_is_not_stopped(crew):
    subject = crew.stage.open_session()
    with pytest.raises(SandboxBusy):
        crew.stage.sessions.stop_sandbox(subject.tenant_id, subject.session_id)


def test_a_stopped_sandbox_is_closed_when_it_was_idle_for_long(site):
    site.stop()
    site.see()
    with site.stage.database.read() as connection:
        (found,) = store.idle_states(connection, site.crew.host.id, site.session)
    now = found.ready_at + 4 * 3600 + 1
    assert due_action(found, found.ready_at + 1000) is IdleAction.NOTHING
    assert due_action(found, now) is IdleAction.IDLE
