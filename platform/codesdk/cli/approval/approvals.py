"""`codesdk approvals`: lists pending approvals and votes on them."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from codesdk.approvals import Approval, ApprovalState, GrantRequest, Verdict, describe_approvers
from codesdk.approvals.missing_files import missing_files
from codesdk.approvals.progress import missing_line, progress_line
from codesdk.cli.api_client import ApiClient, connect
from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer, ResponsiveTable, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.connection_info import warn_if_not_container
from codesdk.errors import ExitCode, Fault
from codesdk.transcript import preview_text
from codesdk.transcript.approval_text import cause_line, effect_groups, effect_lines

TABLE_MIN_WIDTH = 120
"""Terminal width in columns from which a table has room for the call and the reason."""
SHOWN_INPUT = 2000
"""Characters of an input in the table; `--json` prints all of it."""


class NothingWaits(Fault):
    """No pending approval matches the vote."""

    code = "NOTHING_WAITS"
    status = 404
    exit_code = ExitCode.FAILED


class ApprovalSelection(NamedTuple):
    """The approvals to vote on: one by id, or all pending ones of a rule, a session, or both."""

    approval: str | None = None
    rule: str | None = None
    session: str | None = None


def show(*, every: bool, rule: str | None, session: str | None, data_dir: Path | None, as_json: bool) -> None:
    """List approvals."""
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    warn_if_not_container(printer, settings)
    with connect(settings) as daemon:
        found = daemon.approvals(None if every else ApprovalState.PENDING, session, rule)
    if as_json:
        printer.emit({"approvals": found})
    elif not found:
        printer.out.print("No approval is pending.")
    else:
        if printer.out.width >= TABLE_MIN_WIDTH:
            printer.rows(table(found, time.time()))
        else:
            for line in summary_lines(found, time.time()):
                printer.out.print(Text(line), soft_wrap=True)
        for line in () if every else bulk_vote_hints(found):
            printer.progress(line)


def show_one(approval: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Show one approval in full."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        found = daemon.approval(approval)
    if as_json:
        printer.emit(found)
    else:
        for line in detail_lines(found, time.time()):
            printer.out.print(Text(line), soft_wrap=True)


def vote(
    chosen: ApprovalSelection,
    verdict: Verdict,
    *,
    comment: str | None,
    wish: GrantRequest | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Vote on an approval's current state, or on all pending approvals of a rule or session.

    Raises:
        InputWrong: no id, rule or session is given. NothingWaits: no pending approval matches.
    """
    if chosen.approval is chosen.rule is chosen.session is None:
        advice = "Give its id (APPROVAL), or --rule, or --session; `codesdk approvals list` shows them."
        raise InputWrong("Which approval?", advice=advice)
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        answered = [daemon.vote(shown, verdict, comment, wish) for shown in _selected(daemon, chosen)]
    if not answered:
        chose = " and ".join(
            f"{what} {name}" for what, name in (("rule", chosen.rule), ("session", chosen.session)) if name
        )
        advice = "`codesdk approvals list` shows pending approvals with their rules; an approval by default has none."
        raise NothingWaits(f"No approval of the {chose} is pending; no vote was sent.", advice=advice)
    if as_json:
        printer.emit(answered[0] if chosen.approval else {"approvals": answered})
        return
    word = "Approved" if verdict is Verdict.APPROVE else "Rejected"
    for each in answered:
        more = (
            f" (still pending: requires {missing_line(each, time.time())})"
            if each.state is ApprovalState.PENDING
            else ""
        )
        printer.out.print(Text(f"{word} {each.id}: {each.shown.get('tool')} {call_line(each)}{more}"))


def _selected(daemon: ApiClient, chosen: ApprovalSelection) -> Iterator[Approval]:
    """Yield the selected approvals.

    Skips those requested after the command started, because the user has not seen them.

    Vote on each before you take the next: a page has 200 approvals, and answered ones make room for the rest.
    """
    if chosen.approval is not None:
        yield daemon.approval(chosen.approval)
        return
    began = time.time()
    done: set[str] = set()
    while page := [
        each
        for each in daemon.approvals(ApprovalState.PENDING, chosen.session, chosen.rule)
        if each.id not in done and each.created_at <= began
    ]:
        yield from page
        done.update(each.id for each in page)


def bulk_vote_hints(approvals: Sequence[Approval]) -> list[str]:
    """Return how many approvals of one rule wait in one session, and the command that answers them together."""
    counts = Counter((rule, each.session_id) for each in approvals for rule in each.rules[:1])
    return [
        f"{count} of the rule {rule}: `codesdk approvals approve --rule {rule} --session {session}` answers them together"
        for (rule, session), count in counts.items()
        if count > 1
    ]


def detail_lines(approval: Approval, now: float) -> list[str]:
    """Format an approval for a terminal. Escapes control characters in agent-supplied text."""
    shown = approval.shown
    left = f", {approval.expires_at - now:.0f} s left" if approval.state is ApprovalState.PENDING else ""
    commands = [" ".join(map(str, words)) for words in shown.get("commands", [])]
    offer = (
        f"Grant      {', '.join(approval.grant.offer)}, at most {approval.grant.max_ttl_s} s" if approval.grant else ""
    )
    votes = [f"Vote       {vote.verdict} by {vote.name} ({vote.by}) {vote.comment or ''}" for vote in approval.votes]
    lines = [
        f"Approval   {approval.id} ({approval.state}{left})",
        f"Call       {shown.get('tool')} ({shown.get('classification')}) {call_line(approval)}",
        f"Runs       {shlex.join(map(str, shown['runs']))}" if shown.get("runs") else "",
        *(f"Command    {line}" for line in commands),
        f"Asked for  {cause}" if (cause := cause_line(shown)) else "",
        *(f"Effect     {line}" for line in effect_lines(shown)),
        *(f"Risk       {line}" for line in shown.get("risk", [])),
        *_script_lines(shown),
        *(f"File       {line}" for line in _file_lines(shown)),
        *(f"Preview    {line}" for line in preview_text.lines(shown.get("preview"))),
        f"Rule       {', '.join(approval.rules) or 'none: the default or the session mode'}",
        f"Why        {shown.get('reason', '')}",
        f"Who asks   {shown.get('principal')} in {approval.session_id}, profile {shown.get('profile')}",
        f"Requires   {missing_line(approval, now) or describe_approvers(approval)}",
        f"Votes      {progress_line(approval)}" if approval.demands else "",
        *votes,
        offer,
        f"Digest     {approval.digest}",
    ]
    return [sanitize(line) for line in lines if line]


def _script_lines(shown: dict[str, Any]) -> Iterator[str]:
    """List the scripts of the workspace that it runs, with their text."""
    for script in shown.get("scripts", []):
        if "text" not in script:
            yield f"Script     {script.get('path')}: not shown, {script.get('hidden')}"
            continue
        yield f"Script     {script.get('path')}, {script.get('size')} bytes:"
        yield from (f"           {line}" for line in str(script["text"]).splitlines())
        if left := script.get("left_out"):
            yield f"           [{left} more characters are not shown]"


def _file_lines(shown: dict[str, Any]) -> Iterator[str]:
    """List the bound files with their fingerprints; the call doesn't run if one of them changes."""
    bound = shown.get("bound")
    if not isinstance(bound, dict):
        return
    for mark in bound.get("files", []):
        if mark.get("kind") == "absent":
            continue
        real = f" → {mark['real']}" if mark.get("real") else ""
        size = f", {mark['size']} bytes" if "size" in mark else ""
        content = f", sha256 {str(mark['sha256'])[:16]}…" if mark.get("sha256") else ""
        yield f"{mark.get('path')}{real}: {mark.get('kind')}{size}{content}"
    gone = missing_files(shown)
    yield from (f"{path}: absent, and must stay absent" for path in gone.files)
    if gone.counted:
        yield gone.counted
    if more := bound.get("more"):
        yield str(more)


def summary_lines(approvals: list[Approval], now: float) -> Iterator[str]:
    """Format each approval in three lines, for terminals too narrow for a table."""
    for approval in approvals:
        left = approval.expires_at - now if approval.state is ApprovalState.PENDING else 0
        yield f"{approval.id}  {approval.state}{f', {left:.0f} s left' if left > 0 else ''}"
        yield f"  {sanitize(str(approval.shown.get('tool')))} {call_line(approval)}"
        if tried := _preview_line(approval):
            yield f"  {sanitize(tried)}"
        if effects := _effects_line(approval):
            yield f"  {sanitize(effects)}"
        yield f"  why: {sanitize(_reason(approval))}"


def _preview_line(approval: Approval) -> str:
    """Format the result of the dry run, if there was one."""
    preview = approval.shown.get("preview")
    return (
        f"{preview_text.HEADING.lower()}: {preview_text.outcome_line(preview)}" if isinstance(preview, Mapping) else ""
    )


def _effects_line(approval: Approval) -> str:
    """What it can do, without the commands; empty for one that only reads."""
    groups = effect_groups(approval.shown)
    return "; ".join(group.text for group in groups if group.severity or len(groups) == 1)


def _reason(approval: Approval) -> str:
    return f"{approval.shown.get('reason', '')} ({', '.join(approval.shown.get('rules', [])) or 'default'})"


def table(approvals: list[Approval], now: float) -> ResponsiveTable:
    """Return a table with one row per approval. `now`: seconds since the epoch."""
    shown = ResponsiveTable("approval", "state", "left", "call", "why", folds=("call", "why"))
    for approval in approvals:
        left = approval.expires_at - now if approval.state is ApprovalState.PENDING else 0
        call = Text(f"{approval.shown.get('tool')} ", style="bold").append(call_line(approval), style="none")
        for more in (_effects_line(approval), _preview_line(approval)):
            call.append(f"\n{sanitize(more)}" if more else "", style="dim")
        shown.add_row(approval.id, approval.state.value, f"{left:.0f} s" if left > 0 else "", call, _reason(approval))
    return shown


def call_line(approval: Approval) -> str:
    """Format the call on one line. Escapes control characters in agent-supplied text."""
    given = approval.shown.get("input", {})
    command = given.get("command") if isinstance(given, dict) else None
    text = command if isinstance(command, str) and len(given) == 1 else json.dumps(given, ensure_ascii=False)
    printable = sanitize(text)
    return printable if len(printable) <= SHOWN_INPUT else f"{printable[:SHOWN_INPUT]}… ({len(printable)} characters)"
