"""`codesdk events`: a session's log, printed, followed, or folded."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.text import Text

from codesdk.cli.daemon import connect
from codesdk.cli.history import fold
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.record import read_record
from codesdk.cli.stack.signals import Signals
from codesdk.cli.tables import calls_table
from codesdk.cli.voice import Voice
from codesdk.domain.events import Event

SHOWN_PAYLOAD = 160
"""Characters of a payload on one line; `--json` has all of it."""


def show(session: str, *, follow: bool, data_dir: Path | None, as_json: bool) -> None:
    """Print the events there are, and with `follow` those that come; Ctrl-C ends it."""
    voice = Voice(as_json=as_json)
    with connect(settings_of(data_dir)) as daemon:
        daemon.session(session)
        if follow:
            Signals()
        with contextlib.suppress(KeyboardInterrupt):
            for event in daemon.follow(session) if follow else daemon.events(session):
                if as_json:
                    voice.give(event.model_dump(mode="json", exclude_none=True))
                else:
                    voice.out.print(line(event), soft_wrap=True)


def replay(session: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Fold the log as the database holds it; no daemon is needed."""
    voice = Voice(as_json=as_json)
    history = fold(read_record(settings_of(data_dir), session))
    if as_json:
        voice.give(history.model_dump(mode="json"))
    else:
        voice.out.print(calls_table(history))
        voice.out.print(f"{history.last_seq} events, numbered 1 to {history.last_seq} without a gap.", style="dim")


def line(event: Event) -> Text:
    """One event on one line."""
    payload = plain(json.dumps(event.payload, ensure_ascii=False))  # JSON escapes some of what terminals obey
    short = payload if len(payload) <= SHOWN_PAYLOAD else f"{payload[:SHOWN_PAYLOAD]}…"
    return Text.assemble(
        (f"{event.seq:>5} ", "dim"), (event.time[11:23] + " ", "dim"), (f"{event.type!s:<27} ", "cyan"), short
    )
