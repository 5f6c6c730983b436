"""The next worker of a lost host removes what is left on its engine."""

from __future__ import annotations

from codesdk.hosts.lease_watch import LeaseWatch
from codesdk.sessions.lost_hosts import LostHosts


def test_what_is_left_there_has_no_owner_when_the_next_worker_sweeps(stage, crew):
    crew.sandbox_registry.reconcile()
    assert len(crew.sandboxes.living) == 1
    stage.sql("UPDATE hosts SET state = 'lost', generation = generation + 1")
    watch = LeaseWatch(stage.database, stage.writer, stage.clock, 30.0)
    LostHosts(watch=watch, sessions=stage.sessions, database=stage.database, writer=stage.writer, log=stage.log).tend()
    crew.next().sandbox_registry.sweep()
    assert crew.sandboxes.living == ()


def test_a_sandbox_that_was_being_made_while_the_host_was_lost_is_none(stage, crew):
    make = crew.sandboxes.open

    def lose_meanwhile(spec):
        stage.sql("UPDATE hosts SET state = 'lost', generation = generation + 1")
        watch = LeaseWatch(stage.database, stage.writer, stage.clock, 30.0)
        LostHosts(
            watch=watch, sessions=stage.sessions, database=stage.database, writer=stage.writer, log=stage.log
        ).tend()
        return make(spec)

    crew.sandboxes.open = lose_meanwhile
    crew.sandbox_registry.reconcile()
    assert crew.sandboxes.living == ()
    assert "sandbox.started" not in stage.types()
