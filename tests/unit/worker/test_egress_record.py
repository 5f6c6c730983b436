"""An attempt to leave a sandbox is in its session's log, with where it ran; a secret's tenant is the session's."""

from __future__ import annotations

import pytest

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.quotas import Resource
from codesdk.errors import InternalFault
from codesdk.sandbox.egress.attempt import Attempt, Phase, Reason
from codesdk.sandbox.egress.refusal import Refusal
from codesdk.worker.egress_record import EgressRecord


def record(stage, environment=ToolExecutionEnv.CODESDK_HOST) -> EgressRecord:
    return EgressRecord(stage.database, stage.writer, stage.log, environment)


def owner(stage) -> str:
    return stage.sql("SELECT id FROM sandboxes")[0][0]


def attempt(owner: str) -> Attempt:
    return Attempt(owner=owner, call="call_1", attempt=1, number=1, phase=Phase.OPENED, host="a.example", port=443)


@pytest.mark.parametrize("environment", [ToolExecutionEnv.CODESDK_HOST, ToolExecutionEnv.CODESDK_DOCKER])
def test_an_attempt_is_in_the_log_and_says_where_it_was_made(stage, environment):
    record(stage, environment)(attempt(owner(stage)))
    said = stage.events()[-1]
    assert said.type == "sandbox.egress"
    assert (said.payload["host"], said.payload["phase"]) == ("a.example", "opened")
    assert said.payload["execution_env"] == environment.value


def test_an_attempt_of_a_sandbox_that_no_session_owns_is_a_defect_and_so_does_not_pass(stage):
    with pytest.raises(InternalFault, match="sbx_unknown"):
        record(stage)(attempt("sbx_unknown"))


def test_the_tenant_of_a_sandbox_is_its_sessions_and_of_an_unknown_one_there_is_none(stage):
    assert record(stage).tenant_of(owner(stage)) == stage.principal.tenant_id
    assert record(stage).tenant_of("sbx_unknown") is None


def test_a_tenant_that_has_moved_as_much_as_it_may_today_opens_no_connection(stage):
    stage.limit(Resource.EGRESS_BYTES_A_DAY, 100)
    metered = EgressRecord(stage.database, stage.writer, stage.log, ToolExecutionEnv.CODESDK_DOCKER, stage.quotas)
    opened = attempt(owner(stage))
    metered(opened)
    metered(opened.model_copy(update={"phase": Phase.CLOSED, "bytes_up": 40, "bytes_down": 80}))
    before = stage.types()
    with pytest.raises(Refusal, match="120 of 100") as refused:
        metered(opened)
    assert refused.value.reason is Reason.BYTES_A_DAY
    assert b"429" in refused.value.answer()
    assert stage.types() == before
    metered(opened.model_copy(update={"phase": Phase.REFUSED, "reason": Reason.BYTES_A_DAY}))
    assert stage.events()[-1].payload["reason"] == "bytes_a_day"
