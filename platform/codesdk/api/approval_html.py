"""The HTML page of one approval, for a phone: no script, no external resources. Pure.

The order is: what would run, what it can do, why it needs approval, who answers. The buttons stay visible, and details that
only programs need are folded. Nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from codesdk.api import approval_call_html as call_html
from codesdk.api.approval_style import PAGE_HEADERS, STYLE
from codesdk.approvals import Approval, ApprovalState
from codesdk.approvals.progress import missing_line, moment, outcome_line, progress_line, vote_line
from codesdk.domain.decisions import GrantKind, GrantOffer
from codesdk.transcript.rendering import escape_control, line

__all__ = ["MAX_COMMENT", "PAGE_HEADERS", "ApprovalView", "render", "render_problem"]

MAX_COMMENT = 2000
MAX_VOTERS = 8
"""Names of further voters that the page lists."""
_GRANT_SCOPES = {
    GrantKind.SESSION: "also the next calls that these rules ask about, in this session",
    GrantKind.UNTIL: "also the next calls that these rules ask about, in any session of who asks",
}
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_SHOWN_ABOVE = frozenset(
    ["tool", "title", "input", "runs", "scripts", "effects", "cause", "commands", "risk", "preview", "rules", "reason"]
)
_NAMES_OF_DETAILS = {"classification": "Tool class", "behaviour": "Tool hash", "mode": "Permission mode"}


@dataclass(frozen=True)
class ApprovalView:
    """The input of a page."""

    approval: Approval
    answers: bool
    """Whether the page has a form: the link's holder, or someone with an API key, may still vote."""
    voter: str | None
    """Name of the voter. None: the link is view-only, and voters enter an API key."""
    requester: str
    """The principal whose session asks."""
    now: float
    """Seconds since the epoch."""
    notice: str = ""
    may_vote: tuple[str, ...] = ()
    """Names of those who may still vote, one more than MAX_VOTERS at most."""
    call: str = ""
    """What became of the call, in a sentence."""


def render(view: ApprovalView) -> str:
    """Render the page."""
    shown = view.approval.shown
    tool = line(f"{shown.get('tool', 'A call')}")
    title = line(str(shown.get("title") or ""))
    heading = "May this run?" if view.approval.state is ApprovalState.PENDING else "What was asked"
    parts = [
        '<a class="skip" href="#answer">Go to the answer</a>' if view.answers else "",
        f'<p class="note" role="status">{escape(escape_control(view.notice))}</p>' if view.notice else "",
        *_outcome(view),
        f'<section><p class="tool">{escape(f"{title} · {tool}" if title else tool)}</p><h1>{heading}</h1>',
        *call_html.what_runs(shown),
        "</section>",
        *call_html.effects(shown),
        *_question(view),
        *call_html.scripts(shown),
        *call_html.preview(shown),
        *call_html.files(shown),
        *_details(view),
        *(_answer(view) if view.answers else ()),
    ]
    body = "\n".join(part for part in parts if part)
    if not view.answers:
        return _document(f"{heading} {tool}", f"<main>\n{body}\n</main>")
    return _document(
        f"{heading} {tool}", f'<form method="post" action="">\n<main>\n{body}\n</main>\n{_bar(view)}</form>'
    )


def render_problem(title: str, text: str) -> str:
    """Render a page that explains why there is nothing to decide."""
    return _document(title, f"<main><h1>{escape(title)}</h1>\n<p>{escape(escape_control(text))}</p></main>")


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _outcome(view: ApprovalView) -> Iterator[str]:
    """Render how the approval ended, and what became of the call."""
    approval = view.approval
    if approval.state is ApprovalState.PENDING:
        return
    good = approval.state in (ApprovalState.APPROVED, ApprovalState.CONSUMED)
    comment = f"<p>“{escape(escape_control(approval.comment))}”</p>" if approval.comment else ""
    call = f"<p>{escape(escape_control(view.call))}</p>" if view.call else ""
    kind = "outcome" if good else "outcome ended"
    yield f'<div class="{kind}" role="status"><strong>{escape(line(outcome_line(approval)))}</strong>{comment}{call}</div>'


def _question(view: ApprovalView) -> Iterator[str]:
    """Render why it is asked, who asks, and how many have answered."""
    approval, shown = view.approval, view.approval.shown
    pending = approval.state is ApprovalState.PENDING
    several = sum(demand.quorum for demand in approval.demands) > 1
    missing = missing_line(approval, view.now) if pending else ""
    yield "<section><h2>Why it is asked</h2>"
    if reason := call_html.reason(shown):
        yield f"<p>{reason}</p>"
    yield call_html.facts(
        {
            "Rule": ", ".join(map(str, shown.get("rules") or ())) or "none: the default or the session's mode",
            "Asked by": view.requester,
            "Needs": "" if several else missing,
            "May answer": "" if several else _names(view),
            "Until": _until(approval.expires_at, view.now) if pending else "",
        }
    )
    yield "</section>"
    if several or len(approval.votes) > 1 or (approval.votes and pending):
        yield f"<section><h2>{escape(line(progress_line(approval) or 'Answers'))}</h2>"
        votes = "".join(f"<li>{escape(line(vote_line(vote)))}</li>" for vote in approval.votes)
        yield f'<ul class="plain">{votes}</ul>' if votes else ""
        yield call_html.facts({"Still needs": missing, "May answer": _names(view)})
        yield "</section>"


def _names(view: ApprovalView) -> str:
    """Who may still vote, the reader of the page first."""
    names = list(view.may_vote)
    if view.answers and view.voter in names:
        names.remove(view.voter)
        names.insert(0, f"{view.voter} (you)")
    listed = ", ".join(names[:MAX_VOTERS])
    return f"{listed} and others" if len(names) > MAX_VOTERS else listed


def _details(view: ApprovalView) -> Iterator[str]:
    """Render, folded, what only a program or an auditor needs."""
    approval = view.approval
    rest = {
        _NAMES_OF_DETAILS.get(name, name.capitalize()): value
        for name, value in approval.shown.items()
        if name not in _SHOWN_ABOVE and name != "bound"
    }
    voters = ", ".join(vote.by for vote in approval.votes)
    ids = {"Voters": voters, "Approval": approval.id, "Digest": approval.digest}
    yield '<details class="fold"><summary>Details and hashes</summary>'
    yield call_html.facts({**rest, **dict(call_html.fingerprints(approval.shown)), **ids})
    yield "</details>"


def _answer(view: ApprovalView) -> Iterator[str]:
    """Render the fields of the form, apart from its buttons."""
    yield '<section id="answer">'
    yield f'<input type="hidden" name="digest" value="{escape(view.approval.digest)}">'
    if view.voter is None:
        yield '<label class="field" for="key">Your own API key</label>'
        yield '<input id="key" name="api_key" type="password" autocomplete="off" spellcheck="false" required>'
        yield '<p class="soft small">This link only shows the approval. You vote as the holder of the key that you enter; it is not stored.</p>'
    yield '<label class="field" for="comment">Comment for the agent (optional)</label>'
    yield f'<textarea id="comment" name="comment" maxlength="{MAX_COMMENT}"></textarea>'
    yield from _grants(view.approval.grant)
    yield "</section>"


def _bar(view: ApprovalView) -> str:
    """Render the buttons, which stay at the bottom of the screen. Enter in a field presses the first: Reject."""
    who = (
        f'<p class="soft small">You vote as <strong>{escape(line(view.voter))}</strong>, once.</p>'
        if view.voter
        else ""
    )
    return (
        f'<div class="bar">{who}<div><button class="no" name="verdict" value="reject">Reject</button>'
        '<button class="yes" name="verdict" value="approve">Approve</button></div></div>'
    )


def _grants(offer: GrantOffer | None) -> Iterator[str]:
    """Render the choice of grants, if the rules offer any. The narrowest is preselected."""
    kinds = [kind for kind in _GRANT_SCOPES if offer is not None and kind in offer.offer]
    if offer is None or not kinds:
        return
    ends = [_duration(offer.max_ttl_s), *([f"{offer.max_uses} calls"] if offer.max_uses is not None else [])]
    yield "<fieldset><legend>If you approve</legend>"
    yield f'<label><input type="radio" name="grant" value="{GrantKind.ONCE}" checked> this call, once</label>'
    for kind in kinds:
        text = f"{_GRANT_SCOPES[kind]}, for at most {' and '.join(ends)}"
        yield f'<label><input type="radio" name="grant" value="{kind}"> {escape(text)}</label>'
    yield "</fieldset>"


def _duration(seconds: int) -> str:
    """Format a duration in the largest unit that divides it: `8 hours`."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    count = seconds // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _until(expires_at: float, now: float) -> str:
    left = expires_at - now
    if left <= 0:
        return moment(expires_at)
    return f"{moment(expires_at)} ({f'{left / 60:.0f} minutes' if left >= 120 else f'{left:.0f} seconds'} left)"  # noqa: PLR2004 (two minutes)
