"""Approvals compared with a model, for any order of votes, time, cancels and workers. On both databases."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from codesdk.approvals import ApprovalConflict, NotAnApprover, Verdict
from codesdk.tenancy import store as tenancy
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied
from stage import bundle

QUORUM = 2
POLICY = f"""\
version: 1
rules:
  - id: writes
    effect: ask
    tool: workspace.write
    approval: {{group: finance, quorum: {QUORUM}, not_requester: true, timeout: 1h, escalate: {{after: 10m, to: leads}}}}
"""
VERDICTS = st.sampled_from(Verdict)


class OneApproval(RuleBasedStateMachine):
    """The model: who is in which group, who voted what, whether time is up, and what must therefore be."""

    def __init__(self) -> None:
        super().__init__()
        self.number = getattr(type(self), "counted", 0) + 1
        type(self).counted = self.number
        self.votes: dict[str, Verdict] = {}
        self.state = "pending"
        self.escalated = False
        self.left: set[str] = set()

    @initialize()
    def asks(self):
        given = {"path": str(self.number), "content": ""}
        waiting = self.stage.pipeline.submit("workspace.write", given, self.stage.subject)
        self.call = waiting.identity.tool_call_id
        self.asked = self.stage.approval_service.find(self.stage.principal.tenant_id, waiting.approval_id)

    def may(self, name):
        return (name in ("ann", "bob", "cem") and name not in self.left) or (name == "lea" and self.escalated)

    def yes(self):
        return sum(verdict is Verdict.APPROVE and self.may(name) for name, verdict in self.votes.items())

    @rule(name=st.sampled_from(["ann", "bob", "cem", "lea", "dev", "bot"]), verdict=VERDICTS)
    def votes_once(self, name, verdict):
        by = self.people[name]
        before = self.votes.get(name)
        try:
            self.stage.pipeline.vote(
                self.asked.tenant_id, self.asked.id, verdict, digest=self.asked.digest, by=by, comment=None
            )
        except NotAnApprover:
            assert self.state == "pending"
            assert before is None
            assert not self.may(name)
        except ApprovalConflict as conflict:
            told = conflict.details["state"]
            self.refused(told, verdict, before)
        else:
            if before is not None:
                assert before is verdict  # told again, and nothing more
                return
            assert self.state == "pending"
            assert self.may(name)
            self.votes[name] = verdict
            if verdict is Verdict.REJECT:
                self.state = "rejected"
            elif self.yes() >= QUORUM:
                self.state = "approved"

    def refused(self, told, verdict, before):
        assert told == self.state
        assert before is not verdict
        assert self.state != "pending" or before is not None

    @rule()
    def time_passes(self):
        self.stage.sql(
            f"UPDATE approval_demands SET escalate_at = {self.stage.now} WHERE approval_id = '{self.asked.id}'"
        )
        self.escalated = True

    @rule()
    def time_runs_out(self):
        self.stage.sql(f"UPDATE approvals SET expires_at = {self.stage.now} WHERE id = '{self.asked.id}'")
        if self.state == "pending":
            self.state = "expired"

    @rule(name=st.sampled_from(["ann", "bob"]))
    def leaves_the_group(self, name):
        def work(unit):
            tenancy.leave_group(unit.connection, tenancy.principal(unit.connection, self.people[name]), "finance")

        self.stage.writer.run(work)
        self.left.add(name)

    @rule()
    def is_swept(self):
        self.stage.expire_overdue()
        self.stage.approval_flow().escalate_due()

    @rule()
    def is_cancelled(self):
        if self.stage.cancel(self.call, "enough") and self.state in ("pending", "approved"):
            self.state = "cancelled"

    @rule()
    def a_worker_looks(self):
        taken = self.stage.claims().take()
        assert isinstance(taken, ClaimedCall) is (self.state == "approved")
        assert not isinstance(taken, Denied)
        if isinstance(taken, ClaimedCall):
            self.state = "consumed"
            self.stage.sql("UPDATE tool_calls SET state = 'completed' WHERE state LIKE 'running%'")

    def teardown(self):
        if not hasattr(self, "asked"):
            return
        assert self.stage.approval_service.find(self.asked.tenant_id, self.asked.id).state == self.state
        kinds = [event.type.value for event in self.stage.events() if event.payload.get("tool_call_id") == self.call]
        assert kinds.count("tool.call.started") == kinds.count("tool.call.approved") == (self.state == "consumed")
        self.stage.cancel(self.call, "over")
        for name in self.left:
            self.join(name)

    @classmethod
    def join(cls, name, group="finance"):
        cls.stage.writer.run(
            lambda unit: tenancy.join_group(
                unit.connection, tenancy.principal(unit.connection, cls.people[name]), group
            )
        )


def test_whatever_happens_an_approval_is_what_the_model_says(stage):
    stage.tampered = True  # the runs' ends are not written: this is about what starts
    stage.bundle = bundle(stage.root / "model", POLICY, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    people = {name: stage.enroll("default", name, Role.APPROVER)[0].id for name in ("ann", "bob", "cem", "lea", "bot")}
    stage.sql("UPDATE principals SET kind = 'program' WHERE id = :id", id=people["bot"])
    kind = type("OnThisStage", (OneApproval,), {"stage": stage, "people": {**people, "dev": stage.principal.id}})
    for name in ("ann", "bob", "cem", "bot", "dev"):
        kind.join(name)
    kind.join("lea", "leads")
    chosen = settings(
        max_examples=15,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(kind, settings=chosen)
