"""The HTML page of one approval, for a phone: no script, no external resources. Pure.

Text from agents is hostile: it is escaped, control and bidirectional characters are made visible, long lines wrap, and
nothing is left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from codesdk.approvals import Approval, ApprovalState, Verdict, describe_approvers
from codesdk.approvals.missing_files import missing_files
from codesdk.domain.decisions import GrantKind, GrantOffer
from codesdk.transcript import preview_text
from codesdk.transcript.rendering import escape_control, line

_STYLE = """
:root{color-scheme:light dark}
body{font:17px/1.5 system-ui,sans-serif;max-width:42rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:.5rem 0}h2{font-size:1rem;margin:1.4rem 0 .3rem}
pre{font:15px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;padding:.6rem;border:1px solid #8888;border-radius:6px}
ol{padding-left:1.6rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem .8rem;margin:.5rem 0}
dt{opacity:.7}dd{margin:0}.note{border-left:4px solid #c80;padding:.4rem .8rem;margin:.8rem 0;background:#c801}
.size{opacity:.7;font-size:.85rem}input[type=password]{width:100%;box-sizing:border-box;font:inherit;padding:.6rem}textarea{width:100%;box-sizing:border-box;font:inherit;min-height:4rem}
.add{background:#2a02}.cut{background:#a002}
fieldset{border:1px solid #8888;border-radius:6px;margin:.8rem 0}fieldset label{display:block;padding:.4rem 0}
.two{display:flex;gap:.8rem;margin:1rem 0 2rem}
button{flex:1;font:inherit;font-weight:600;padding:.9rem;border-radius:8px;border:2px solid;background:none;color:inherit;cursor:pointer}
.yes{border-color:#182}.no{border-color:#b22}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",  # the link is a credential; `no-referrer` would hide the form's origin from us
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex, nofollow",
    "cross-origin-opener-policy": "same-origin",
}
MAX_COMMENT = 2000
_LINE_COUNT_FROM = 12
"""Number of lines from which a field shows its line count, because important lines may be far below."""
_STATES = {
    ApprovalState.PENDING: "Waits for an answer",
    ApprovalState.APPROVED: "Approved",
    ApprovalState.CONSUMED: "Approved, and started",
    ApprovalState.REJECTED: "Rejected",
    ApprovalState.EXPIRED: "Expired: nobody answered in time",
    ApprovalState.CANCELLED: "Cancelled",
    ApprovalState.VOIDED: "Void: what would have run was no longer what was approved",
}
_GRANT_SCOPES = {
    GrantKind.SESSION: "also the next calls that these rules ask about, in this session",
    GrantKind.UNTIL: "also the next calls that these rules ask about, in any session of who asks",
}
_PREVIEW_LIMITS = (
    "The copy has the workspace and nothing else: no network, no secrets, no other programs. "
    "A tool that changes files makes exactly this change or none; a command runs again, and may behave differently."
)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_SHOWN_SEPARATELY = frozenset(
    {"tool", "title", "input", "commands", "risk", "preview", "rules", "reason", "principal", "session", "bound"}
)


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


def render(view: ApprovalView) -> str:
    """Render the page."""
    approval, shown = view.approval, view.approval.shown
    title = line(f"{shown.get('tool', 'A call')}")
    parts = [
        f"<h1>May this run? {escape(title)}</h1>",
        f'<p class="note" role="status">{escape(escape_control(view.notice))}</p>' if view.notice else "",
        *_state(view),
        *_list("Risk", shown.get("risk")),
        "<h2>What will run</h2>",
        *_fields(shown.get("input")),
        *_commands(shown.get("commands")),
        *_bound(shown),
        *_preview(shown.get("preview")),
        "<h2>Why it is asked</h2>",
        _facts(
            {
                "Reason": shown.get("reason"),
                "Rules": ", ".join(map(str, shown.get("rules") or ())) or "the default",
                "Asked by": view.requester,
                "Session": shown.get("session"),
                "Requires": describe_approvers(approval),
                "Until": _until(approval.expires_at, view.now),
            }
        ),
        *_rest({name: value for name, value in shown.items() if name not in _SHOWN_SEPARATELY}),
        *(_form(view) if view.answers else ()),
        f'<p class="size">{escape(approval.id)}<br>{escape(approval.digest)}</p>',
    ]
    return _document(f"May this run? {title}", "\n".join(part for part in parts if part))


def render_problem(title: str, text: str) -> str:
    """Render a page that explains why there is nothing to decide."""
    return _document(title, f"<h1>{escape(title)}</h1>\n<p>{escape(escape_control(text))}</p>")


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _state(view: ApprovalView) -> Iterator[str]:
    approval = view.approval
    if approval.state is not ApprovalState.PENDING or not view.answers:
        yield f"<p><strong>{escape(_STATES[approval.state])}</strong></p>"
    for vote in approval.votes:
        answer = "yes" if vote.verdict is Verdict.APPROVE else "no"
        comment = f": {vote.comment}" if vote.comment else ""
        yield f"<p>{escape(line(f'{vote.name} ({vote.by}) said {answer}{comment}'))}</p>"


def _fields(given: Any) -> Iterator[str]:
    """Render the input, with texts verbatim: line breaks as line breaks."""
    if not isinstance(given, Mapping) or not given:
        yield _block(_json(given))
        return
    for name, value in given.items():
        text = value if isinstance(value, str) else _json(value)
        count = text.count("\n") + 1
        size = f' <span class="size">{count} lines</span>' if count >= _LINE_COUNT_FROM else ""
        yield f"<p>{escape(line(str(name)))}{size}</p>"
        yield _diff(text) if name in ("patch", "diff") else _block(text)


def _commands(given: Any) -> Iterator[str]:
    """Render every command that the shell line runs, as far as it can be parsed."""
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        return
    yield "<h2>Every command in it</h2><ol>"
    for words in given:
        text = shlex.join(map(str, words)) if isinstance(words, Sequence) and not isinstance(words, str) else str(words)
        yield f"<li>{_block(text)}</li>"
    yield "</ol>"


def _bound(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render the bound files. If one of them changes, the call doesn't run."""
    given = shown.get("bound")
    if not isinstance(given, Mapping) or not given:
        return
    files = given.get("files")
    marks = [each for each in files if isinstance(each, Mapping)] if isinstance(files, Sequence) else []
    there = [each for each in marks if each.get("kind") != "absent"]
    gone = missing_files(shown)
    absent = ", ".join(gone.files)
    yield "<h2>Files that a yes is about</h2>"
    yield from (f"<p>{escape(line(_mark(each)))}</p>" for each in there)
    if absent:
        yield f'<p class="size">Absent, and must stay absent: {escape(line(absent))}</p>'
    if gone.counted:
        yield f'<p class="size">{escape(gone.counted)}</p>'
    more = given.get("more")
    if isinstance(more, str) and more:
        yield f'<p class="note">{escape(line(more))}</p>'
    shown_above = ("files", "more") if isinstance(more, str) else ("files",)
    if other := {name: value for name, value in given.items() if name not in shown_above}:
        yield _block(_json(other))


def _mark(mark: Mapping[str, Any]) -> str:
    rest = {
        name: value for name, value in mark.items() if name not in ("path", "cwd", "kind", "real", "size") and value
    }
    real = f" → {mark['real']}" if mark.get("real") else ""
    more = "".join(f", {name} {value}" for name, value in rest.items())
    return f"{mark.get('path')}{real}: {mark.get('kind')}, {mark.get('size', 0)} bytes{more}"


def _preview(given: Any) -> Iterator[str]:
    """Render the dry run's effects, if there was one."""
    if not isinstance(given, Mapping):
        return
    yield f"<h2>{preview_text.HEADING}</h2>"
    kind = ' class="note"' if {"failed", "failed_in_copy"} & set(given) else ""
    yield f"<p{kind}>{escape(preview_text.outcome_line(given))}</p>"
    if changed := preview_text.changes(given):
        yield f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in changed)}</ul>"
    if text := preview_text.diff(given):
        yield _diff(text)
    for name, text in preview_text.output_texts(given):
        yield f"<p>{escape(name)}</p>"
        yield _block(text)
    yield f'<p class="size">{_PREVIEW_LIMITS}</p>'


def _list(title: str, given: Any) -> Iterator[str]:
    lines = [given] if isinstance(given, str) else given
    if isinstance(lines, Sequence) and lines:
        yield f'<div class="note" aria-label="{escape(title)}">' + "".join(
            f"<div>{escape(line(str(each)))}</div>" for each in lines
        )
        yield "</div>"


def _rest(given: Mapping[str, Any]) -> Iterator[str]:
    rest = {name: value for name, value in given.items() if value not in (None, "", [], {})}
    if rest:
        yield "<h2>More</h2>"
        yield _facts({name: value if isinstance(value, str) else _json(value) for name, value in rest.items()})


def _facts(given: Mapping[str, Any]) -> str:
    pairs = [
        f"<dt>{escape(line(name))}</dt><dd>{escape(line(str(value)))}</dd>" for name, value in given.items() if value
    ]
    return f"<dl>{''.join(pairs)}</dl>"


def _form(view: ApprovalView) -> Iterator[str]:
    yield '<form method="post" action="">'
    yield f'<input type="hidden" name="digest" value="{escape(view.approval.digest)}">'
    yield f'<h2><label for="comment">Comment for the agent</label></h2><textarea id="comment" name="comment" maxlength="{MAX_COMMENT}"></textarea>'
    yield from _grants(view.approval.grant)
    if view.voter is None:
        yield '<h2><label for="key">Your own API key</label></h2>'
        yield '<input id="key" name="api_key" type="password" autocomplete="off" spellcheck="false" required>'
        yield '<p class="size">This link only shows the approval. You vote as the holder of the key that you enter; it is not stored.</p>'
    else:
        yield f"<p>You vote as <strong>{escape(line(view.voter))}</strong>, once.</p>"
    yield '<div class="two"><button class="no" name="verdict" value="reject">Reject</button>'
    yield '<button class="yes" name="verdict" value="approve">Approve</button></div></form>'


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


def _diff(text: str) -> str:
    kinds = {"+": "add", "-": "cut"}
    rows = [
        f'<span class="{kinds[row[0]]}">{escape(escape_control(row))}</span>'
        if row[:1] in kinds
        else escape(escape_control(row))
        for row in text.split("\n")
    ]
    return "<pre>\n" + "\n".join(rows) + "</pre>"


def _block(text: str) -> str:
    # Browsers drop a line break right after <pre>, so we add one.
    return f"<pre>\n{escape(escape_control(text))}</pre>"


def _json(given: Any) -> str:
    return json.dumps(given, ensure_ascii=False, indent=2)


def _until(moment: float, now: float) -> str:
    left = moment - now
    at = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if left <= 0:
        return at
    return f"{at} (in {left / 60:.0f} minutes)" if left >= 120 else f"{at} (in {left:.0f} seconds)"  # noqa: PLR2004
