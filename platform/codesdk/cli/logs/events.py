"""`codesdk events show`: prints or follows a session's log."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.text import Text

from codesdk.cli.api_client import connect
from codesdk.cli.console.terminal import Printer, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.signals import Signals
from codesdk.domain.events import Event

MAX_PAYLOAD_CHARS = 160
"""Characters of a payload on one line; `--json` prints all of it."""

TRAILING_KEYS = frozenset({"tool_call_id", "attempt", "input_hash"})
"""Keys that every event of a call repeats; printed last, so that they don't push the others off the line."""


def show(session: str, *, follow: bool, data_dir: Path | None, as_json: bool) -> None:
    """Print the existing events, and with `follow` new ones until Ctrl-C."""
    printer = Printer(as_json=as_json)
    with connect(load_settings(data_dir)) as daemon:
        daemon.session(session)
        if follow:
            Signals()
        with contextlib.suppress(KeyboardInterrupt):
            for event in daemon.follow(session) if follow else daemon.events(session):
                if as_json:
                    printer.emit(event.model_dump(mode="json", exclude_none=True))
                else:
                    printer.out.print(line(event), soft_wrap=True)


def line(event: Event) -> Text:
    """Format an event on one line."""
    ordered = sorted(event.payload.items(), key=lambda item: item[0] in TRAILING_KEYS)
    payload = sanitize(json.dumps(dict(ordered), ensure_ascii=False))  # JSON doesn't escape all terminal controls
    short = payload if len(payload) <= MAX_PAYLOAD_CHARS else f"{payload[:MAX_PAYLOAD_CHARS]}…"
    return Text.assemble(
        (f"{event.seq:>5} ", "dim"), (event.time[11:23] + " ", "dim"), (f"{event.type!s:<27} ", "cyan"), short
    )
