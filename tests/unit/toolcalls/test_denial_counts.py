"""Denied calls are counted by their code, in the transaction that denies them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import Resource
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Reach, Role
from codesdk.toolcalls.records.call_record import Denied, Queued
from codesdk.toolcalls.statistics.denial_counts import DenialCounts
from codesdk.toolcalls.statistics.store import count_denial


def counted(stage):
    watcher = stage.principal.model_copy(update={"reach": Reach.INSTANCE, "roles": (Role.AUDITOR,)})
    return {code: calls for code, calls in DenialCounts(stage.database).totals(watcher).items() if calls}


def command(stage, number):
    return stage.pipeline.submit("workspace.exec", {"command": f"echo {number}"}, stage.subject)


def test_a_full_queue_is_counted_for_each_call_that_it_turns_away(stage):
    assert counted(stage) == {}
    stage.limit(Resource.QUEUED_CALLS, 1)
    assert isinstance(command(stage, 0), Queued)
    for number in (1, 2):
        assert isinstance(command(stage, number), Denied)
    assert counted(stage) == {DenialCode.QUEUE_FULL: 2}


def test_each_kind_of_refusal_has_a_count_of_its_own_and_what_runs_has_none(stage):
    stage.pipeline.submit("patch.apply", {"patch": "x"}, stage.subject)
    queued = command(stage, 1)
    stage.pipeline.cancel(stage.principal.tenant_id, stage.session.id, queued.identity.tool_call_id, "enough")
    command(stage, 2)
    assert counted(stage) == {DenialCode.POLICY: 1, DenialCode.CANCELLED: 1}


def test_processes_that_count_the_same_at_once_lose_none(stage):
    tenant = stage.principal.tenant_id
    databases = [Database(stage.url) for _ in range(3)]
    lock = stage.root / "write.lock" if stage.database.is_sqlite else None
    writers = [Writer(database, lock) for database in databases]
    try:
        with ThreadPoolExecutor(6) as pool:
            done = [
                pool.submit(writer.run, lambda unit: count_denial(unit, tenant, DenialCode.QUEUE_FULL))
                for writer in writers
                for _ in range(10)
            ]
        assert [each.result() for each in done] == [None] * 30
    finally:
        for writer in writers:
            writer.close()
        for database in databases:
            database.close()
    assert counted(stage) == {DenialCode.QUEUE_FULL: 30}


def test_the_sums_over_all_tenants_are_not_for_who_is_one_tenants(stage):
    with pytest.raises(Forbidden):
        DenialCounts(stage.database).totals(stage.principal.model_copy(update={"roles": (Role.AUDITOR,)}))
