"""`codesdk transcript`: a session's log as a conversation."""

from __future__ import annotations

import sys
from pathlib import Path

from codesdk.cli.forms import Form
from codesdk.cli.places import settings_of
from codesdk.cli.record import read_record
from codesdk.cli.schema.files import write
from codesdk.cli.voice import Voice
from codesdk.transcript import fold, html, markdown


def give(session: str, *, form: Form, output: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Write it to a file or to stdout; with `as_json` its messages, calls, tasks and totals."""
    told = fold(read_record(settings_of(data_dir), session).events)
    if as_json:
        Voice(as_json=True).give(told.model_dump(mode="json", exclude_none=True))
        return
    text = html.render(told) if form is Form.HTML else markdown.render(told)
    if output is not None:
        write(output, text, secret=True)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
