"""Asks the session's user through the agent's client while a call waits, and records the reply as a vote."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from anyio import CapacityLimiter, to_thread

from codesdk.approvals import Approval, ApprovalConflict, ApprovalService, ApprovalUnknown, NotAnApprover
from codesdk.domain.clock import Clock
from codesdk.domain.subjects import Subject
from codesdk.mcphost.elicitation import questions
from codesdk.mcphost.tool_calls.caller import Caller
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records.call_record import Outcome, Waiting

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

APPROVAL_WAIT_S = 10.0
"""Seconds to wait for an approval to be created; a worker inspects files in milliseconds."""
PREVIEW_WAIT_S = 90.0
"""The same for a call that is previewed first; never longer than its client waits."""
POLL_S = 0.1
"""Seconds between polls for the approval."""


class UserElicitation:
    """Used on the host's event loop; `vote` and `page` block on the database and are called in threads."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        approval_service: ApprovalService,
        clock: Clock,
        wait_s: float,
        limiter: CapacityLimiter,
        forms: bool,
        link: questions.ApprovalLink | None,
        shown: questions.ApprovalLink | None,
    ) -> None:
        """Arguments as for `CallHandler`."""
        self._pipeline = pipeline
        self._approval_service = approval_service
        self._clock = clock
        self._wait_s = wait_s
        self._limiter = limiter
        self._forms = forms
        self._link = link
        self._shown = shown

    def may_be_asked(self, caller: Caller) -> bool:
        """Whether the client can be asked, and the request is not itself a reply."""
        elicitor = caller.asking
        return (
            (self._forms or self._link is not None)
            and elicitor is not None
            and elicitor.answered is None
            and bool(elicitor.capability)
        )

    async def question(self, outcome: Outcome, caller: Caller) -> tuple[Approval, types.ElicitRequest] | None:
        """The question for this client's user, once the approval exists: a worker first inspects the files it binds."""
        if not isinstance(outcome, Waiting) or caller.asking is None:
            return None
        wait_s = self._wait_s if caller.wait_s is None else caller.wait_s
        due = self._clock.monotonic() + (min(PREVIEW_WAIT_S, wait_s) if outcome.is_being_previewed else APPROVAL_WAIT_S)
        while (approval := await self._thread(self._approval, caller.subject, outcome)) is None:
            if self._clock.monotonic() > due:
                return None
            await asyncio.sleep(POLL_S)
        build = partial(questions.build_question, forms=self._forms, link=self._link)  # in a thread: links are recorded
        asked = await self._thread(build, approval, caller.subject, caller.asking.capability)
        return (approval, asked) if asked is not None else None

    async def ask(self, outcome: Outcome, caller: Caller) -> None:
        """Ask a client that answers while the call waits, and record a form's reply as the user's vote."""
        question = await self.question(outcome, caller)
        if question is not None and caller.asking is not None:
            approval, asked = question
            result = await caller.asking.ask(asked)
            await self._thread(
                self.vote, caller.subject, questions.state_of(approval, asked), questions.parse_form(result)
            )

    def vote(self, subject: Subject, about: questions.QuestionState, given: questions.FormVote | None) -> None:
        """Record a form's reply as the vote of the session's principal, if forms are trusted and one vote suffices."""
        if given is None or not self._forms or not about.form:
            return
        approval = self._approval_service.find(subject.tenant_id, about.approval)
        if approval.session_id != subject.session_id or not questions.single_vote_suffices(approval):
            return
        try:
            self._pipeline.vote(
                subject.tenant_id,
                about.approval,
                given.verdict,
                digest=about.digest,
                by=subject.principal_id,
                comment=given.comment,
            )
        except (ApprovalConflict, NotAnApprover) as refused:
            _log.info("a form's reply had no effect: %s", refused)

    def page(self, subject: Subject, outcome: Waiting) -> str | None:
        """The URL of the approval's read-only page; None while the approval is being prepared."""
        approval = self._approval(subject, outcome) if self._shown is not None else None
        return self._shown(approval, subject) if self._shown is not None and approval is not None else None

    def _approval(self, subject: Subject, outcome: Waiting) -> Approval | None:
        try:
            return self._approval_service.find(subject.tenant_id, outcome.approval_id)
        except ApprovalUnknown:
            return None  # still being prepared, or voided: the call's record has that

    async def _thread(self, function: Callable[..., _T], *given: Any) -> _T:
        return await to_thread.run_sync(function, *given, limiter=self._limiter)
