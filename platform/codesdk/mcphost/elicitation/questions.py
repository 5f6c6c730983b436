"""Questions to the session's user through the agent's client (MCP elicitation): their form, text and replies.

A link to the approval's page is preferred, with a form as fallback. Both pass through the agent's host, which could answer
by itself. If the operator trusts such hosts, the answer is the vote of the session's principal, and is asked for only if
that one vote suffices. Otherwise there are no forms, and the link is read-only: deciding on its page takes an API key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from codesdk.approvals import Approval, Verdict, describe_approvers
from codesdk.domain.ids import ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.tenancy.access import PERMISSIONS, Action
from codesdk.transcript import preview_text as previews
from codesdk.transcript.approval_text import effect_lines

ApprovalLink = Callable[[Approval, Subject], str | None]
"""The URL of the approval's page for the session's user; None if there is none. Whether the page is read-only is up to the
function: it must be if hosts aren't trusted."""

INPUT_KEY = "approval"
"""Key of the question in `inputRequests`."""
_API_KEY_HINT = "The page shows all of it; whoever decides there needs an API key of their own that may approve."
_MAX_INPUT_CHARS = 2000
"""Characters of the input shown in a question; `codesdk approvals show` and the page show all of it."""


class QuestionState(FrozenModel):
    """What a question is about: sent to the client sealed, and returned with the reply."""

    call: ToolCallId
    approval: str
    digest: str
    form: bool
    """Whether the reply itself is the vote. The reply to a link only reports that it was opened."""


class QuestionReply(FrozenModel):
    """A question with its reply."""

    about: QuestionState
    result: types.ElicitResult | None


class FormVote(FrozenModel):
    """The vote in a form's reply."""

    verdict: Verdict
    comment: str | None


def build_question(
    approval: Approval,
    subject: Subject,
    capability: types.ElicitationCapability | None,
    *,
    forms: bool,
    link: ApprovalLink | None,
) -> types.ElicitRequest | None:
    """The question for this client's user; None if they may not decide, or the client can't show a question.

    `forms`: agents' hosts are trusted with their user's answer. If not, every user is shown the link.
    """
    may_decide = bool(PERMISSIONS[Action.APPROVALS_DECIDE].roles.intersection(subject.roles)) and single_vote_suffices(
        approval
    )
    if capability is None or (forms and not may_decide):
        return None
    text = _question_text(approval) if forms else f"{_question_text(approval)} {_API_KEY_HINT}"
    if capability.url is not None and link is not None and (url := link(approval, subject)) is not None:
        page = types.ElicitRequestURLParams(message=text, url=url, elicitation_id=approval.id)
        return types.ElicitRequest(params=page)
    # `elicitation: {}` of older clients means forms.
    shows_forms = capability.form is not None or capability.url is None
    if forms and shows_forms:
        return types.ElicitRequest(params=types.ElicitRequestFormParams(message=text, requested_schema=_FORM))
    return None


def single_vote_suffices(approval: Approval) -> bool:
    """Whether a single vote of the session's principal can approve it."""
    return not approval.not_requester and all(demand.quorum == 1 for demand in approval.demands)


def parse_form(result: types.ElicitResult | None) -> FormVote | None:
    """The vote in a submitted form. Declined and cancelled forms are no votes: clients do both by themselves."""
    if result is None or result.action != "accept" or not result.content:
        return None
    verdict, comment = result.content.get("decision"), result.content.get("comment")
    if not isinstance(verdict, str) or verdict not in list(Verdict):
        return None
    return FormVote(verdict=Verdict(verdict), comment=comment.strip() or None if isinstance(comment, str) else None)


def parse_reply(params: types.CallToolRequestParams) -> QuestionReply | None:
    """The reply that this request carries; None if none. The SDK has unsealed the state, so it is what we wrote."""
    if params.request_state is None:
        return None
    try:
        about = QuestionState.model_validate_json(params.request_state)
    except ValidationError:
        return None
    given = (params.input_responses or {}).get(INPUT_KEY)
    return QuestionReply(about=about, result=given if isinstance(given, types.ElicitResult) else None)


def ask_in_result(approval: Approval, asked: types.ElicitRequest) -> types.InputRequiredResult:
    """The call result that asks the question, for clients of the newer era."""
    about = state_of(approval, asked)
    return types.InputRequiredResult(input_requests={INPUT_KEY: asked}, request_state=about.model_dump_json())


def state_of(approval: Approval, asked: types.ElicitRequest) -> QuestionState:
    """The state of a question."""
    return QuestionState(
        call=approval.tool_call_id,
        approval=approval.id,
        digest=approval.digest,
        form=isinstance(asked.params, types.ElicitRequestFormParams),
    )


_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "enum": [verdict.value for verdict in Verdict],
            "description": "Whether this call may run, once.",
        },
        "comment": {"type": "string", "title": "Comment", "description": "Told to the agent.", "maxLength": 1000},
    },
    "required": ["decision"],
}


def _question_text(approval: Approval) -> str:
    shown = approval.shown
    given = json.dumps(shown.get("input"), ensure_ascii=False)
    cut = (
        given
        if len(given) <= _MAX_INPUT_CHARS
        else f"{given[:_MAX_INPUT_CHARS]} … ({len(given) - _MAX_INPUT_CHARS} characters more)"
    )
    rules = ", ".join(shown.get("rules", ())) or "the default"
    effects = "; ".join(effect_lines(shown))
    effects_text = f" What it can do: {effects}." if effects else ""
    approvers_text = f" It takes {describe_approvers(approval)}." if approval.demands else ""
    preview = shown.get("preview")
    preview_text = f" {previews.HEADING}: {previews.outcome_line(preview)}." if isinstance(preview, Mapping) else ""
    return f"May the agent run {shown.get('tool')}? Input: {cut}.{effects_text}{preview_text} Asked by {rules}: {shown.get('reason')}{approvers_text}"
