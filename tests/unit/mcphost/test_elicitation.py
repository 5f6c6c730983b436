"""When and how an agent's user is asked about an approval."""

from __future__ import annotations

import mcp_types as types
import pytest

from codesdk.approvals import Approval, ApprovalState, DemandProgress, Verdict
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.mcphost.elicitation import questions

SUBJECT = Subject(
    tenant_id=TenantId("ten_1"), principal_id=PrincipalId("prn_1"), session_id=SessionId("ses_1"), roles=("operator",)
)
FORMS = types.ElicitationCapability(form=types.FormElicitationCapability())
PAGES = types.ElicitationCapability(url=types.UrlElicitationCapability())
BOTH = types.ElicitationCapability(form=types.FormElicitationCapability(), url=types.UrlElicitationCapability())


def approval(**more):
    facts = {
        "id": ApprovalId("apr_1"),
        "tool_call_id": ToolCallId("call_1"),
        "attempt": 1,
        "session_id": SUBJECT.session_id,
        "tenant_id": SUBJECT.tenant_id,
        "state": ApprovalState.PENDING,
        "digest": "sha256:0",
        "shown": {"tool": "workspace.exec", "input": {"command": "make"}, "rules": ["exec"], "reason": "Why."},
        "created_at": 0.0,
        "expires_at": 1.0,
    }
    return Approval.model_validate(facts | more)


def link(_approval, _subject):
    return "https://approve.example/apr_1"


def mode(asked):
    return asked.params.mode if asked else None


@pytest.mark.parametrize(
    ("capability", "forms", "page", "expected"),
    [
        (BOTH, True, link, "url"),
        (BOTH, False, link, "url"),
        (BOTH, True, None, "form"),
        (BOTH, False, None, None),
        (FORMS, True, link, "form"),
        (types.ElicitationCapability(), True, link, "form"),  # what clients say that know nothing but forms
        (PAGES, True, None, None),
        (PAGES, True, lambda *_: None, None),
        (None, True, link, None),
    ],
)
def test_a_page_comes_first_and_a_form_only_where_it_is_trusted(capability, forms, page, expected):
    assert mode(questions.build_question(approval(), SUBJECT, capability, forms=forms, link=page)) == expected


@pytest.mark.parametrize(
    "wanted",
    [{"not_requester": True}, {"demands": (DemandProgress(quorum=2, approved=0),)}],
    ids=["another person", "two people"],
)
def test_an_agents_client_never_stands_for_another_person(wanted):
    assert questions.build_question(approval(**wanted), SUBJECT, BOTH, forms=True, link=None) is None
    assert questions.build_question(approval(**wanted), SUBJECT, BOTH, forms=True, link=link) is None


def test_who_may_not_approve_is_not_asked():
    developer = SUBJECT.model_copy(update={"roles": ("developer", "auditor")})
    assert questions.build_question(approval(), developer, BOTH, forms=True, link=link) is None


@pytest.mark.parametrize("roles", [("developer",), ("approver",)])
@pytest.mark.parametrize("wanted", [{}, {"not_requester": True}, {"demands": (DemandProgress(quorum=2, approved=0),)}])
def test_a_client_that_is_not_trusted_is_shown_the_page_whoever_must_answer_there(roles, wanted):
    subject = SUBJECT.model_copy(update={"roles": roles})
    asked = questions.build_question(approval(**wanted), subject, BOTH, forms=False, link=link)
    assert mode(asked) == "url"
    assert "API key of their own" in asked.params.message


def test_a_question_shows_the_call_and_marks_what_it_leaves_out():
    long = approval(shown={"tool": "workspace.write", "input": {"content": "x" * 5000}, "reason": "Why."})
    said = questions.build_question(long, SUBJECT, FORMS, forms=True, link=None).params.message
    assert "workspace.write" in said
    assert "characters more" in said
    assert len(said) < 2500


@pytest.mark.parametrize(
    "content",
    [None, {}, {"decision": "yes"}, {"decision": True}, {"decision": ["approve"]}, {"comment": "approve"}],
)
def test_a_form_that_says_neither_yes_nor_no_decides_nothing(content):
    assert questions.parse_form(types.ElicitResult(action="accept", content=content)) is None


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_only_a_sent_form_decides(action):
    assert questions.parse_form(types.ElicitResult(action=action, content={"decision": "approve"})) is None
    sent = questions.parse_form(types.ElicitResult(action="accept", content={"decision": "approve", "comment": "  "}))
    assert sent == questions.FormVote(verdict=Verdict.APPROVE, comment=None)


def test_a_question_says_what_came_of_a_trial():
    shown = {"tool": "workspace.exec", "input": {"command": "make"}, "rules": ["exec"], "reason": "Why."}
    told = {
        "outcome": "exited",
        "exit_code": 2,
        "files": [{"path": "a", "change": "added", "what": "file"}],
        "diff": "",
    }
    asked = questions.build_question(approval(shown={**shown, "preview": told}), SUBJECT, FORMS, forms=True, link=None)
    assert "Tried in a copy of the workspace: exit code 2, 1 path changed." in asked.params.message
