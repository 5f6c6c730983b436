"""`codesdk policy decide` and `explain`: evaluate single calls."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from codesdk.cli.console.terminal import Printer
from codesdk.cli.policy.loading import PolicyContext, load
from codesdk.domain.decisions import Decision
from codesdk.errors import ExitCode, Fault
from codesdk.policy.evaluation.query import PolicyQuery, evaluate

MAX_LINE = 4 * 1024 * 1024
"""Maximum bytes of a call; more than an MCP client can send."""


class NotACall(Fault):
    """The text doesn't describe a call."""

    code = "NOT_A_CALL"
    status = 400
    exit_code = ExitCode.USAGE


def decide_lines(policies: Path | None) -> int:
    """Write one decision per input line, in order.

    An invalid line gets an error object, and the exit code is then 65.
    """
    loaded = load(policies)
    printer = Printer(as_json=True)
    bad = False
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            printer.emit(decision_json(parse_trial(line), loaded))
        except NotACall as fault:
            bad = True
            printer.emit({"error": {"code": fault.code, "message": str(fault)}})
    return ExitCode.DATA if bad else ExitCode.OK


def run_explain(call: str | None, command: str | None, policies: Path | None, *, as_json: bool) -> int:
    """Print the decision and the result of every rule.

    Raises:
        NotACall: neither a call nor a command is given, or both.
    """
    if (call is None) == (command is None):
        raise NotACall("Give either a call as JSON or --command.", advice="codesdk policy explain -c 'git status'")
    trial = (
        parse_trial(call.encode())
        if call is not None
        else PolicyQuery(tool="workspace.exec", input={"command": command})
    )
    loaded = load(policies)
    decision = evaluate(trial, loaded.tools, loaded.bundle, every=True)
    printer = Printer(as_json=as_json)
    if as_json:
        printer.emit({**_decision_json(decision), "trace": [entry.model_dump(mode="json") for entry in decision.trace]})
        return ExitCode.OK
    printer.out.print(f"{decision.effect} by {', '.join(decision.rules) or 'default'}", soft_wrap=True, markup=False)
    printer.out.print(decision.reason, soft_wrap=True, markup=False)
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("rule", "effect", "matches", "why"):
        shown.add_column(column, overflow="fold")
    for entry in decision.trace:
        matches = "error" if entry.error else ("yes" if entry.matched else "no")
        shown.add_row(entry.rule, entry.effect, matches, entry.why)
    printer.out.print(shown)
    return ExitCode.OK


def decision_json(trial: PolicyQuery, loaded: PolicyContext) -> dict[str, Any]:
    """Return the decision in the format of `decide`."""
    return _decision_json(evaluate(trial, loaded.tools, loaded.bundle))


def parse_trial(line: bytes) -> PolicyQuery:
    """Parse a call from JSON.

    Raises:
        NotACall: with what is wrong.
    """
    if len(line) > MAX_LINE:
        raise NotACall(f"The call has {len(line)} bytes; at most {MAX_LINE} are read.")
    try:
        return PolicyQuery.model_validate(json.loads(line))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "the call"
            raise NotACall(f"{where}: {first['msg'].removeprefix('Value error, ')}.") from error
        # The parser's line number is within this one line; the caller adds its own.
        why = f"{error.msg}, at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise NotACall(f"This is not a JSON object: {why or 'it is nested too deeply'}.") from error


def _decision_json(decision: Decision) -> dict[str, Any]:
    approval = decision.approval.model_dump(mode="json") if decision.approval else None
    obligations = decision.obligations.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    obligations |= {"approval": approval} if approval else {}
    obligations |= {"rates": [rate.model_dump(mode="json") for rate in decision.rates]} if decision.rates else {}
    return {
        "effect": decision.effect.value,
        "rules": list(decision.rules),
        "reason": decision.reason,
        "obligations": obligations,
        "bundle": decision.bundle_hash,
    }
