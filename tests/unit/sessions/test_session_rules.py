"""A session's own rules: they apply to its calls, are recorded, and survive a restart."""

from __future__ import annotations

import pytest

from codesdk.domain.calls import DenialCode
from codesdk.policy import PolicyInvalid
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.policy.rollout.version_service import VersionService
from codesdk.sessions import NewSession
from codesdk.toolcalls.records.call_record import Denied, Queued, Waiting

RULES = """\
version: 1
rules:
- {id: no-reading, effect: deny, tool: workspace.read, args: {/path: {beneath: secret}}, reason: Not in this session.}
- {id: look-first, effect: ask, tool: workspace.list}
"""
READ = ("workspace.read", {"path": "secret/a"})


def test_a_sessions_own_rules_hold_for_its_calls_and_no_others(stage):
    own = stage.open_session(policy=RULES)
    denied = stage.pipeline.submit(*READ, own)
    assert isinstance(denied, Denied)
    assert (denied.code, denied.message) == (DenialCode.POLICY, "Not in this session.")
    assert isinstance(stage.pipeline.submit("workspace.list", {}, own), Waiting)
    assert isinstance(stage.pipeline.submit("workspace.read", {"path": "a"}, own), Queued)
    assert isinstance(stage.pipeline.submit(*READ, stage.subject), Queued)


def test_they_are_recorded_by_hash_and_a_later_process_reads_them_again(stage):
    own = stage.open_session(policy=RULES)
    created = stage.events(own)[0]
    assert created.payload["policy_hash"] == own.policy_hash
    assert stage.sessions.find(own.tenant_id, own.session_id).policy_hash == own.policy_hash
    assert "policy_hash" not in stage.events(stage.subject)[0].payload
    stage.rules = SessionRules(stage.database, [tool.name for tool in stage.registry.tools()])
    assert isinstance(stage.pipeline_with(stage.bundle).submit(*READ, own), Denied)


def test_the_worker_judges_by_them_too(stage):
    own = stage.open_session(policy=RULES)
    # Decided by a process that does not apply them: the claim does.
    lax = own.model_copy(update={"policy_hash": None})
    assert isinstance(stage.pipeline.submit(*READ, lax), Queued)
    taken = stage.claims().take()
    assert isinstance(taken, Denied)
    assert "Not in this session." in taken.message


def test_a_session_whose_rules_are_gone_is_denied_everything(stage):
    own = stage.open_session(policy=RULES)
    stage.sql("DELETE FROM policy_texts")
    stage.rules = SessionRules(stage.database, [])
    outcome = stage.pipeline_with(stage.bundle).submit("workspace.read", {"path": "a"}, own)
    assert isinstance(outcome, Denied)
    assert "are gone" in outcome.message


def test_rules_that_would_loosen_open_nothing(stage):
    before = len(stage.sessions.listing(stage.principal.tenant_id))
    with pytest.raises(PolicyInvalid, match="can only ask or deny"):
        stage.sessions.open(stage.principal, NewSession(policy="version: 1\nrules: [{id: a, effect: allow}]\n"))
    assert len(stage.sessions.listing(stage.principal.tenant_id)) == before


def test_a_session_can_be_opened_with_what_its_tenants_bundle_says_already(stage):
    tools = {tool.name: tool for tool in stage.registry.tools()}
    case = "{name: n, tool: workspace.read, input: {path: secret/a}, expect: deny}"
    sources = {"policy.yaml": RULES, "tests/t.yaml": f"version: 1\ncases: [{case}]\n"}
    versions = VersionService(stage.database, stage.writer, stage.ids, tools, stage.clock)
    versions.promote(stage.principal.tenant_id, sources, tools, stage.principal.id)
    own = stage.open_session(policy=RULES)
    denied = stage.pipeline.submit(*READ, own)
    assert isinstance(denied, Denied)
    assert denied.message == "Not in this session."
