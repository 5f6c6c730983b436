"""`codesdk events show`: a session's log, printed or followed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.text import Text

from codesdk.cli.daemon import connect
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.stack.signals import Signals
from codesdk.cli.voice import Voice
from codesdk.domain.events import Event

SHOWN_PAYLOAD = 160
"""Characters of a payload on one line; `--json` has all of it."""

SHOWN_LAST = frozenset({"tool_call_id", "attempt", "input_hash"})
"""What every event of a call repeats: it must not push out of sight what only this one says."""


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


def line(event: Event) -> Text:
    """One event on one line."""
    told = sorted(event.payload.items(), key=lambda item: item[0] in SHOWN_LAST)
    payload = plain(json.dumps(dict(told), ensure_ascii=False))  # JSON escapes some of what terminals obey
    short = payload if len(payload) <= SHOWN_PAYLOAD else f"{payload[:SHOWN_PAYLOAD]}…"
    return Text.assemble(
        (f"{event.seq:>5} ", "dim"), (event.time[11:23] + " ", "dim"), (f"{event.type!s:<27} ", "cyan"), short
    )
