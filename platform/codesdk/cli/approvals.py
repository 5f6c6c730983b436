"""`codesdk approvals`: what waits for a person, and the answer."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.table import Table
from rich.text import Text

from codesdk.approvals import Approval, ApprovalState, Verdict
from codesdk.cli.daemon import connect
from codesdk.cli.environment import tell
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice

SHOWN_INPUT = 2000
"""Characters of an input in the table; `--json` has all of it."""


def show(*, every: bool, data_dir: Path | None, as_json: bool) -> None:
    """List them."""
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    tell(voice, settings)
    with connect(settings) as daemon:
        found = daemon.approvals(None if every else ApprovalState.PENDING)
    if as_json:
        voice.give({"approvals": [approval.model_dump(mode="json") for approval in found]})
    elif not found:
        voice.out.print("Nothing waits for a person.")
    else:
        voice.out.print(table(found, time.time()))


def vote(approval: str, verdict: Verdict, *, comment: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Vote on the approval as it stands now."""
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        shown = daemon.approval(approval)
        decided = daemon.vote(shown, verdict, comment)
    if as_json:
        voice.give(decided.model_dump(mode="json"))
    else:
        word = "Approved" if verdict is Verdict.APPROVE else "Rejected"
        voice.out.print(Text(f"{word} {decided.id}: {shown.shown.get('tool')} {call_line(shown)}"))


def table(approvals: list[Approval], now: float) -> Table:
    """One row an approval. `now`: seconds since the epoch."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("approval", "state", "left", "call", "why"):
        shown.add_column(column, overflow="fold", no_wrap=column in ("approval", "state", "left"))
    for approval in approvals:
        left = approval.expires_at - now if approval.state is ApprovalState.PENDING else 0
        call = Text(f"{approval.shown.get('tool')} ", style="bold").append(call_line(approval), style="none")
        why = f"{approval.shown.get('reason', '')} ({', '.join(approval.shown.get('rules', [])) or 'default'})"
        shown.add_row(approval.id, approval.state.value, f"{left:.0f} s" if left > 0 else "", call, Text(why))
    return shown


def call_line(approval: Approval) -> str:
    """What would run, on one line; control characters of an agent must not reach the terminal."""
    asked = approval.shown.get("input", {})
    command = asked.get("command") if isinstance(asked, dict) else None
    text = command if isinstance(command, str) and len(asked) == 1 else json.dumps(asked, ensure_ascii=False)
    printable = plain(text)
    return printable if len(printable) <= SHOWN_INPUT else f"{printable[:SHOWN_INPUT]}… ({len(printable)} characters)"
