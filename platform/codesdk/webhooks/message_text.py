"""Renders messages as text for people. Agent-written text is untrusted: control characters are escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from codesdk.transcript import preview_text
from codesdk.transcript.approval_text import cause_line, effect_groups, effect_lines
from codesdk.transcript.rendering import escape_control, line
from codesdk.webhooks.delivery import Message

PREVIEW_CHARACTERS = 1200
"""Characters of a preview; a chat message takes 3,000 in all, and the approval page shows everything."""
BRIEF_CHARACTERS = 200
"""Characters of a line in a digest, so that twenty items with links fit one chat message."""
APPROVAL_REQUEST_TYPES = frozenset({"approval.requested", "approval.escalated"})
"""Messages that ask for a vote."""
_TITLES = {
    "approval.requested": "Approval requested",
    "approval.escalated": "Approval still pending",
    "approval.decided": "Approval decided",
    "approval.expired": "Approval expired: nobody answered in time",
    "tool.call.completed": "Call completed",
    "tool.call.denied": "Call denied",
    "webhook.test": "A test of this endpoint",
}


def heading(message: Message) -> str:
    """Title of one message."""
    title = _TITLES.get(message.type, message.type)
    approval = message.data.get("approval") or {}
    tool = approval.get("tool") or (message.data.get("payload") or {}).get("name")
    return line(f"{title}: {tool}" if isinstance(tool, str) else title)


def title_of(messages: Sequence[Message]) -> str:
    """Title of a message or a digest."""
    if len(messages) == 1:
        return heading(messages[0])
    asking = sum(message.type in APPROVAL_REQUEST_TYPES for message in messages)
    rest = len(messages) - asking
    parts = [f"{asking} approvals requested" if asking != 1 else "1 approval requested"] if asking else []
    parts += [f"{rest} other messages" if rest != 1 else "1 other message"] if rest else []
    return ", ".join(parts)


def summary_lines(message: Message) -> list[str]:
    """A digest item, in a few short lines."""
    approval: dict[str, Any] = message.data.get("approval") or {}
    payload = message.data.get("payload") or {}
    told = [line(input_text(approval["input"]))[:BRIEF_CHARACTERS]] if "input" in approval else []
    effects = "; ".join(group.text for group in effect_groups(approval) if group.severity)
    about = [effects, approval.get("reason"), payload.get("state"), payload.get("code"), message.data.get("session_id")]
    said = "; ".join(str(each) for each in about if each)
    return [heading(message)[:BRIEF_CHARACTERS], *told, *([line(said)[:BRIEF_CHARACTERS]] if said else [])]


def lines(message: Message) -> list[str]:
    """The body: what happened and, for an approval, what would run and why it needs one."""
    approval: dict[str, Any] = message.data.get("approval") or {}
    told = [
        ("What it can do", "; ".join(effect_lines(approval))),
        ("Why", approval.get("reason")),
        ("Because of", cause_line(approval)),
        ("Rules", ", ".join(map(str, approval.get("rules") or ()))),
        ("Asked by", approval.get("principal")),
        ("Votes", approval.get("progress")),
        ("Until", _expiry(approval.get("expires_at"))),
        ("Session", message.data.get("session_id")),
        ("At", message.timestamp),
    ]
    found = [f"{name}: {line(str(value))}" for name, value in told if value]
    if "input" in approval:
        found += ["", "It would run:", escape_control(input_text(approval["input"]))]
    elif approval:
        found += ["", "The call is too long for a message; see the approval page."]
    if tried := preview_text.lines(approval.get("preview"), PREVIEW_CHARACTERS):
        found += ["", *tried]
    payload = message.data.get("payload") or {}
    found += [f"{name}: {line(str(payload[name]))}" for name in ("state", "by", "code", "is_error") if name in payload]
    return found


def input_text(given: Any) -> str:
    """A call's input: the command line if that is all of it, else JSON."""
    command = given.get("command") if isinstance(given, dict) and len(given) == 1 else None
    return command if isinstance(command, str) else json.dumps(given, ensure_ascii=False, indent=2)


def _expiry(moment: Any) -> str:
    known = isinstance(moment, (int, float))
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if known else ""
