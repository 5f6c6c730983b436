"""`codesdk transcript`: prints a session's log as a conversation."""

from __future__ import annotations

import sys
from pathlib import Path

from codesdk.cli.commands.events import TranscriptFormat
from codesdk.cli.console.files import write
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.logs.stored_log import read_stored_log
from codesdk.transcript import fold, html_page, markdown_page


def emit(session: str, *, form: TranscriptFormat, output: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Write the transcript to a file or stdout. `as_json`: its messages, calls, tasks and totals."""
    transcript = fold(read_stored_log(load_settings(data_dir), session).events)
    if as_json:
        Printer(as_json=True).emit(transcript.model_dump(mode="json", exclude_none=True))
        return
    text = html_page.render(transcript) if form is TranscriptFormat.HTML else markdown_page.render(transcript)
    if output is not None:
        write(output, text, secret=True)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
