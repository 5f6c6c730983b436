"""Actions are recorded in tamper-evident chains, and sessions' logs are sealed into them."""

from __future__ import annotations

import threading

import pytest

from codesdk.domain.quotas import QuotaExceeded, Resource
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail, store
from codesdk.eventlog.audit.log_sealing import Sealer
from codesdk.eventlog.audit.verification import verify_audit
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Principal, Reach, Role
from codesdk.tenancy.tenant import TenantUnknown


@pytest.fixture
def operator(stage) -> Principal:
    made, _ = stage.enroll("head-office", "operator", Role.OPERATOR, reach=Reach.INSTANCE)
    return made


def entries(stage, chain):
    with stage.database.read() as connection:
        return store.after(connection, chain, 0, 1000)


def sealer(stage):
    return Sealer(stage.database, stage.writer, stage.clock)


def changed(stage):
    return [f"{found.where}: {found.what}" for found in verify_audit(stage.database).findings]


@pytest.fixture
def busy(stage, operator):
    """A tenant with some administration, and a session that is sealed twice."""
    office, tenant = stage.administration, stage.principal.tenant_id
    someone = office.create_principal(operator, tenant, "someone", (Role.DEVELOPER,))
    key = office.create_key(operator, someone.id, "laptop")
    office.update_groups(operator, someone.id, join=["night"], leave=[])
    office.set_limits(operator, tenant, {Resource.SESSIONS: 5, Resource.ARTIFACT_BYTES: None})
    office.revoke_key(operator, key.key.id)
    office.disable(operator, someone.id)
    assert sealer(stage).seal() == 1
    stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    assert sealer(stage).seal() == 1
    assert sealer(stage).seal() == 0
    return stage


def test_what_an_administrator_does_is_kept_with_who_did_it_and_no_secret(busy, operator):
    tenant = busy.principal.tenant_id
    kept = entries(busy, tenant)
    assert [entry.act for entry in kept] == [
        "principal.created",
        "key.created",
        "principal.regrouped",
        "quotas.set",
        "key.revoked",
        "principal.disabled",
        "session.sealed",
        "session.sealed",
    ]
    assert {entry.actor for entry in kept[:6]} == {operator.id}
    assert [entry.number for entry in kept] == list(range(1, 9))
    assert kept[3].details == {"limits": {"sessions": "5", "artifact_bytes": None}}
    made = busy.administration.create_key(operator, busy.principal.id, "k")
    assert made.secret not in str(entries(busy, tenant))
    assert changed(busy) == []


def test_suspending_resuming_weighing_allowing_yolo_and_making_a_tenant_are_kept_in_its_chain(stage, operator):
    made = stage.administration.create_tenant(operator, "another")
    stage.administration.suspend(operator, made.id)
    stage.administration.resume(operator, made.id)
    stage.administration.set_weight(operator, made.id, 3)
    stage.administration.allow_yolo(operator, made.id, allowed=True)
    said = [(entry.act, entry.details) for entry in entries(stage, made.id)]
    assert said == [
        ("tenant.created", {"name": "another"}),
        ("tenant.suspended", {}),
        ("tenant.resumed", {}),
        ("tenant.weighed", {"weight": 3}),
        ("tenant.yolo_set", {"allowed": True}),
    ]


def test_what_was_refused_leaves_no_entry(stage, operator):
    stage.limit(Resource.API_KEYS, 1)
    with pytest.raises(QuotaExceeded):
        stage.administration.create_key(operator, stage.principal.id, "one too many")
    assert entries(stage, stage.principal.tenant_id) == []


ENTRY_4 = "WHERE chain = :tenant AND number = 4"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE audit_entries SET actor = 'nobody' {ENTRY_4}", ["entry 4: it or its hash was changed"]),
        (f"UPDATE audit_entries SET act = 'key.revoked' {ENTRY_4}", ["entry 4: it or its hash was changed"]),
        (f"UPDATE audit_entries SET details = '{{}}' {ENTRY_4}", ["entry 4: it or its hash was changed"]),
        (
            f"UPDATE audit_entries SET hash = 'sha256:0' {ENTRY_4}",
            ["entry 4: it or its hash was changed", "entry 5: it or its hash was changed"],
        ),
        (f"DELETE FROM audit_entries {ENTRY_4}", ["entry 4: it is gone"]),
        (
            "DELETE FROM audit_entries WHERE chain = :tenant AND number = 8",
            ["entries 8 to 8: they are gone"],
        ),
        ("DELETE FROM audit_heads WHERE chain = :tenant", ["the end: it is not what the chain's row says"]),
        (
            "UPDATE events SET body = replace(body, 'workspace.exec', 'workspace.evil') WHERE seq = 2",
            ["events 2 to 3: they or one of them was changed"],
        ),
        ("UPDATE events SET time = '2026-01-01T00:00:00.001Z' WHERE seq = 1", ["events 1 to 1: they or one of them"]),
        ("DELETE FROM events WHERE seq = 3", ["events 2 to 3: event 3 is gone"]),
        ("DELETE FROM events WHERE seq = 2", ["events 2 to 3: event 2 is gone"]),
        ("UPDATE sessions SET sealed_seq = 0", ["it was sealed, and is gone or says that it was not"]),
    ],
)
def test_whatever_is_changed_afterwards_is_named(busy, statement, said):
    busy.tampered = True
    values = {"tenant": busy.principal.tenant_id} if ":tenant" in statement else {}
    busy.sql(statement, **values)
    found = changed(busy)
    for each in said:
        assert any(each in one for one in found), found


def test_a_chain_that_was_rewritten_whole_is_found_by_an_end_that_was_kept_elsewhere(busy):
    tenant = busy.principal.tenant_id
    kept = verify_audit(busy.database).heads
    assert verify_audit(busy.database, kept).findings == ()
    told = [entry.model_copy(update={"actor": "nobody"}) for entry in entries(busy, tenant)]
    busy.sql("DELETE FROM audit_entries WHERE chain = :tenant", tenant=tenant)
    busy.sql("DELETE FROM audit_heads WHERE chain = :tenant", tenant=tenant)
    busy.writer.run(lambda unit: [store.append(unit.connection, deed_of(entry)) for entry in told])
    assert changed(busy) == []
    assert [found.what for found in verify_audit(busy.database, kept).findings] == ["it is not the one that was kept"]
    busy.sql("DELETE FROM audit_entries WHERE chain = :tenant AND number > 3", tenant=tenant)
    assert "it was kept, and is gone" in [found.what for found in verify_audit(busy.database, kept).findings]


def deed_of(entry):
    from codesdk.eventlog.audit.entry import AuditRecord  # noqa: PLC0415

    return AuditRecord.model_validate(entry.model_dump(include=set(AuditRecord.model_fields)))


def test_a_log_that_goes_on_after_its_seal_is_as_good_as_before(busy):
    busy.pipeline.submit("workspace.exec", {"command": "y"}, busy.subject)
    assert changed(busy) == []
    assert verify_audit(busy.database).sealed_events == 3


def test_processes_that_write_one_chain_at_once_leave_it_whole(stage, writers):
    def write(writer, name):
        for number in range(10):
            writer.run(
                lambda unit, number=number: AuditTrail(stage.clock).record(
                    unit, INSTALLATION, AuditAction.TENANT_CREATED, actor=name, target=str(number)
                )
            )

    threads = [threading.Thread(target=write, args=(writer, f"w{place}")) for place, writer in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [entry.number for entry in entries(stage, INSTALLATION)] == list(range(1, 41))
    assert changed(stage) == []


def test_an_auditor_reads_its_own_tenants_chain_and_one_of_the_installation_every_chain(stage, operator):
    tenant = stage.principal.tenant_id
    stage.administration.set_weight(operator, tenant, 2)
    auditor, _ = stage.enroll("default", "auditor", Role.AUDITOR)
    far, _ = stage.enroll("head-office", "far auditor", Role.AUDITOR, reach=Reach.INSTANCE)
    read = stage.administration.audit
    assert [entry.act for entry in read(auditor, tenant, 0, 10)] == ["tenant.weighed"]
    assert [entry.act for entry in read(far, tenant, 0, 10)] == ["tenant.weighed"]
    assert read(far, tenant, 1, 10) == read(far, INSTALLATION, 0, 10) == []
    for chain in (INSTALLATION, operator.tenant_id, "ten_none"):
        with pytest.raises(TenantUnknown):
            read(auditor, chain, 0, 10)
    with pytest.raises(Forbidden):
        read(stage.principal, tenant, 0, 10)
