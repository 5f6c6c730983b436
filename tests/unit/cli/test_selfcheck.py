"""The output of `codesdk sandbox selfcheck`."""

from __future__ import annotations

import pytest
import typer
from rich.console import Console

from codesdk.cli.sandboxes import selfcheck
from codesdk.sandbox.selfcheck import Group, Outcome, Status


def outcome(name: str, status: Status, reason: str) -> Outcome:
    return Outcome(name=name, group=Group.ESCAPE, status=status, reason=reason)


def test_every_probe_is_a_row_with_its_reason():
    console = Console(width=100, record=True, file=None)
    with console.capture() as shown:
        console.print(
            selfcheck.table(
                [
                    outcome("a", Status.PASS, "closed"),
                    outcome("b", Status.FAIL, "[open]"),
                    outcome("c", Status.EXEMPT, "why"),
                ]
            )
        )
    rows = [line.split() for line in shown.get().splitlines()[1:]]
    assert rows == [["✓", "a", "closed"], ["✗", "b", "[open]"], ["·", "c", "why"]]


def test_a_name_that_no_probe_has_is_a_usage_error_before_anything_is_opened():
    with pytest.raises(typer.BadParameter, match="no-such"):
        selfcheck.run(runtime="runc", only="no-such-*", as_json=True)
