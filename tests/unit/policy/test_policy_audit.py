"""The audit names who put a policy in force."""

from __future__ import annotations

from codesdk.bootstrap.policy_audit import FILES_ACTOR, PolicyAudit
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail, store
from codesdk.policy import PolicyInvalid


class Layers:
    """What is in force, by layer: all that the record asks of the bundles."""

    def __init__(self, shared):
        self.shared = shared
        self.refused = {}

    def hashes(self):
        return {"shared": self.shared}

    def problems(self):
        return self.refused


def told(stage, action=AuditAction.POLICY_IN_FORCE):
    with stage.database.read() as connection:
        return store.last_of(connection, INSTALLATION, action)


def test_a_promoted_policy_is_its_promoters_and_one_from_files_is_nobodys(stage):
    layers = Layers("sha256:a")
    record = PolicyAudit(layers, stage.database, stage.writer, stage.clock)
    record.note()
    assert told(stage).actor == FILES_ACTOR

    promoted = {"hash": "sha256:b", "before": "sha256:a", "comment": ""}
    stage.writer.run(
        lambda unit: AuditTrail(stage.clock).record(
            unit, INSTALLATION, AuditAction.POLICY_PROMOTED, actor="prn_boss", target="policy", **promoted
        )
    )
    layers.shared = "sha256:b"
    record.note()
    assert (told(stage).actor, told(stage).details["hash"]) == ("prn_boss", "sha256:b")

    layers.shared = "sha256:c"
    record.note()
    assert told(stage).actor == FILES_ACTOR


def test_refused_files_are_recorded_once_with_the_version_that_stays_in_force(stage):
    layers = Layers("sha256:a")
    record, other = (PolicyAudit(layers, stage.database, stage.writer, stage.clock) for _ in range(2))
    layers.refused = {"shared": PolicyInvalid("policy.yaml", 3, 1, "The rule `a` names the unknown tool `b`.")}
    record.note()
    first = told(stage, AuditAction.POLICY_REFUSED)
    assert first.details == {
        "hash": "sha256:a",
        "problem": "policy.yaml:3:1: The rule `a` names the unknown tool `b`.",
    }
    record.note()
    other.note()
    assert told(stage, AuditAction.POLICY_REFUSED).number == first.number
