"""Resources of a dead worker are released once, after its successor has taken over."""

from __future__ import annotations

import pytest

from codesdk.domain.quotas import QuotaExceeded, Resource


def used(stage, resource):
    report = stage.quotas.report(stage.database, stage.principal.tenant_id)
    return next(quota.used for quota in report if quota.resource is resource)


def test_a_sandbox_whose_worker_died_is_given_back_when_the_next_has_removed_it(stage, crew):
    one = stage.profile.memory_bytes
    stage.limit(Resource.SANDBOX_MEMORY_BYTES, one)
    crew.sandbox_registry.ready(stage.session.id)
    crew.sandbox_registry.close()  # the worker is gone; its sandbox lives on
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    later = crew.next()
    assert used(stage, Resource.SANDBOX_MEMORY_BYTES) == one
    with pytest.raises(QuotaExceeded):
        stage.open_session()
    for _ in range(2):
        later.sandbox_registry.reconcile()
        later.sandbox_registry.sweep()
        assert used(stage, Resource.SANDBOX_MEMORY_BYTES) == 0
    stage.open_session()
    assert used(stage, Resource.SANDBOX_MEMORY_BYTES) == one


def test_a_call_whose_worker_died_runs_no_more_once_it_is_lost(stage, crew):
    stage.limit(Resource.RUNNING_CALLS, 1)
    for path in ("a", "b"):
        stage.pipeline.submit("workspace.read", {"path": path}, stage.subject)
    assert stage.claims(generation=crew.host.generation).take() is not None
    assert used(stage, Resource.RUNNING_CALLS) == 1
    later = crew.next()
    assert stage.claims(generation=later.host.generation).take() is None
    later.recovery.take_up()  # it only reads: its next attempt waits, beside the other call
    assert (used(stage, Resource.RUNNING_CALLS), used(stage, Resource.QUEUED_CALLS)) == (0, 2)
    assert stage.claims(generation=later.host.generation).take() is not None
