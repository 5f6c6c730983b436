"""Rows for people: an id is never cut, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from codesdk.cli.console.terminal import ResponsiveTable

SESSION = f"ses_{'0' * 26}"


def printed(listing, width, *, terminal=True):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False)
    console.print(listing, soft_wrap=not terminal)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.fixture
def listing():
    made = ResponsiveTable("session", "state", "labels", folds=("labels",))
    made.add_row(SESSION, "open", Text("opened-by=somebody who has [a] name of many words"))
    made.add_row(SESSION, "closed", "")
    return made


def test_what_is_copied_stands_whole_on_a_line_of_its_table(listing):
    lines = printed(listing, 60)
    assert lines[0].split() == ["session", "state", "labels"]
    assert [line.split()[:2] for line in lines if SESSION in line] == [[SESSION, "open"], [SESSION, "closed"]]


def test_where_a_table_does_not_fit_each_row_has_its_id_and_then_the_rest(listing):
    lines = printed(listing, 40)
    assert lines[0] == SESSION
    assert lines[1].startswith("  state open  labels opened-by=")
    assert lines[-2:] == [SESSION, "  state closed"]
    assert all(len(line) <= 40 for line in lines)


def test_a_pipe_gets_each_row_on_one_line(listing):
    lines = printed(listing, 40, terminal=False)
    assert len(lines) == 3
    assert lines[1].split(maxsplit=2) == [SESSION, "open", "opened-by=somebody who has [a] name of many words"]


@pytest.mark.parametrize("width", [20, 80])
def test_what_somebody_wrote_is_no_markup_and_steers_no_terminal(width):
    made = ResponsiveTable("version", "comment", folds=("comment",))
    made.add_row("sha256:1234567", "see [/x] \x1b[2J[red]y", style="dim")
    told = " ".join(" ".join(printed(made, width)).split())
    assert "see [/x] \\x1b[2J[red]y" in told
    assert "\x1b" not in told
