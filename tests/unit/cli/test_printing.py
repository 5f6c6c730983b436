from __future__ import annotations

import pytest
from rich.console import Console

from codesdk.cli.console.terminal import Printer, pluralize, sanitize
from codesdk.cli.logs import events
from codesdk.cli.session import manage
from codesdk.domain.events import Event
from codesdk.sessions import Session

HOSTILE = "[/x] \\[bold]b \x1b[2K \x9b1A \u202egpj.exe"
"""Markup that does not close, an escape, C1's own, and what turns a line around."""


def shown(capsys, print_it):
    print_it(Console(highlight=False, width=2000))
    return capsys.readouterr().out


def check(text):
    assert "[/x] \\[bold]b " in text
    assert all(c.isprintable() for c in text.replace("\n", ""))


def test_plain_text_shows_what_a_terminal_would_obey():
    assert sanitize("a\tb\nc \x1b \x9b \u202e é") == "a\\tb\\nc \\x1b \\x9b \\u202e é"


def test_an_event_of_a_hostile_tool_is_one_plain_line(capsys):
    event = Event.model_validate(
        {
            "schema_version": 1,
            "seq": 1,
            "time": "2026-01-01T00:00:00.000Z",
            "type": "tool.output.delta",
            "trace": {"session_id": "ses_1"},
            "runtime": {"name": "x"},
            "payload": {"delta": HOSTILE},
        }
    )
    text = shown(capsys, lambda console: console.print(events.line(event), soft_wrap=True))
    assert all(c.isprintable() for c in text.replace("\n", ""))


def test_labels_of_a_session_are_text(capsys):
    session = Session.model_validate(
        {
            "id": "ses_1",
            "tenant_id": "ten_1",
            "principal_id": "prn_1",
            "host_id": "hst_1",
            "state": "open",
            "runtime": "x",
            "permission_mode": "auto",
            "labels": {"a": HOSTILE},
            "image": "sha256:0",
            "last_seq": 1,
            "created_at": 0.0,
        }
    )
    check(shown(capsys, lambda console: console.print(manage.table([session]))))


@pytest.mark.parametrize("write", [Printer.progress, Printer.warn])
def test_what_a_process_says_of_its_end_is_text(capsys, write):
    write(Printer(), "it ended: [/x] \\[bold]b")
    assert "[/x] \\[bold]b" in capsys.readouterr().err


def test_one_is_one_thing_and_all_else_are_many():
    assert [pluralize(number, "call") for number in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]
    assert pluralize(2, "entry", "entries") == "2 entries"
