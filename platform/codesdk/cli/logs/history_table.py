"""Formats a history as a table."""

from __future__ import annotations

import json
from typing import Any

from rich.table import Table
from rich.text import Text

from codesdk.cli.logs.history import Call, History
from codesdk.sandbox.port import DOCKER
from codesdk.tools.diff_parser import parse_readings
from codesdk.tools.hunks import PatchRejected

STATE_STYLE = {"completed": "green", "failed": "yellow", "denied": "red"}
MAX_INPUT_CHARS = 200
"""Maximum characters; narrow terminals cut earlier."""


def calls_table(history: History) -> Table:
    """Return a table with one row per call: tool, decision, result, duration."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    shown.add_column("call", no_wrap=True, overflow="ellipsis", ratio=1)
    for column in ("decision", "rule", "outcome"):
        shown.add_column(column, no_wrap=True)
    shown.add_column("ms", justify="right", no_wrap=True)
    outside = any(call.execution_env not in (None, DOCKER) for call in history.calls)
    if outside:
        shown.add_column("ran in", no_wrap=True)
    for call in history.calls:
        shown.add_row(
            call_summary(call),
            decision(call),
            rules(call),
            Text(call.state, style=STATE_STYLE.get(call.state, "none")),
            "" if call.total_ms is None else f"{call.total_ms:.0f}",
            *([call.execution_env or ""] if outside else []),
        )
    return shown


def call_summary(call: Call) -> Text:
    """Format the tool and the main part of its input."""
    gist = _input_summary(call.input)
    gist = " ".join("".join(c if c.isprintable() else " " for c in gist).split())
    short = gist if len(gist) <= MAX_INPUT_CHARS else f"{gist[: MAX_INPUT_CHARS - 1]}…"
    return Text.assemble((call.name, "bold"), f" {short}")


def _input_summary(given: dict[str, Any]) -> str:
    """Return the main part of an input: the command, the path, the pattern, or the files of a patch."""
    if isinstance(patched := given.get("patch"), str):
        return _patched_files(patched)
    value = next((given[name] for name in ("command", "path", "pattern", "argv") if name in given), given)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _patched_files(patch: str) -> str:
    """Return the files that a patch changes; empty if it is refused."""
    try:
        files = parse_readings(patch)[0]
    except PatchRejected:
        return ""
    return ", ".join(file.path for file in files)


def decision(call: Call) -> str:
    """Format all evaluations in order: `ask → user: allow`."""
    return " → ".join(v.result if v.source == "codesdk" else f"{v.source}: {v.result}" for v in call.voices)


def rules(call: Call) -> str:
    """Return the rule that policy applied; `default` if none matched."""
    return next((evaluation.rule or "default" for evaluation in call.voices if evaluation.source == "codesdk"), "")


def outcome(call: Call) -> Text:
    """Format the final state and its code, if any."""
    text = f"{call.state} ({call.code})" if call.code else call.state
    return Text(text, style=STATE_STYLE.get(call.state, "none"))
