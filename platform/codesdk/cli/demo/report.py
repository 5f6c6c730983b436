"""Prints the demo live: each step, its decision and result, with a spinner while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from codesdk.cli.demo.steps import Step
from codesdk.cli.logs.history import Call
from codesdk.cli.logs.history_table import call_summary, outcome, rules

EFFECT_STYLE = {"allow": "green", "ask": "yellow", "deny": "red"}
MAX_LINE_CHARS = 96
"""Characters of a result's line that are printed."""


class DemoReport:
    """Prints the demo to a terminal, or as plain lines if stdout is not one."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, text: str) -> None:
        """Print a heading."""
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def line(self, text: str) -> None:
        """Print a remark."""
        self._console.print(Text(text, style="dim"))

    def good(self, text: str) -> None:
        """Print a check that passed."""
        self._console.print(Text.assemble((" ✓ ", "green"), text), soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print an indented table."""
        self._console.print(Padding(table, (1, 0, 0, 4)))

    @contextmanager
    def working(self, number: int, step: Step) -> Iterator[None]:
        """Show a spinner while the step runs."""
        with self._console.status(Text.assemble((f"{number} ", "bold"), step.title, (f"  {step.tool}", "dim"))):
            yield

    def step(self, number: int, step: Step, call: Call, text: str) -> None:
        """Print a step that ended as expected."""
        shown = self._console
        shown.print()
        shown.print(Text.assemble((f" {number}  ", "bold"), (step.title, "bold")))
        shown.print(Text.assemble("    ", call_summary(call)), overflow="ellipsis", no_wrap=True)
        shown.print(Text.assemble("    ", decision_chain(call), "  ", timing(call)), overflow="ellipsis", no_wrap=True)
        shown.print(Text.assemble(("    │ ", "dim"), excerpt(text, step.show)), overflow="ellipsis", no_wrap=True)
        if step.note:
            shown.print(Text.assemble("    ", (step.note, "italic dim")))

    def left_out(self, number: int, step: Step, why: str) -> None:
        """Print a step that this machine can't run."""
        self._console.print()
        self._console.print(Text.assemble((f" {number}  ", "bold"), (f"{step.title}: left out, {why}", "dim")))


def decision_chain(call: Call) -> Text:
    """Format the decisions: `ask by rule x → allow by user → completed`."""
    chain = Text()
    for evaluation in call.voices:
        by = f"by rule {rules(call)}" if evaluation.source == "codesdk" else f"by {evaluation.source}"
        chain.append(evaluation.result, style=EFFECT_STYLE.get(evaluation.result, "none")).append(f" {by}", style="dim")
        chain.append(" → ", style="dim")
    return chain.append_text(outcome(call))


def timing(call: Call) -> Text:
    """Format the total time and the time in the sandbox."""
    total = f"{call.total_ms:.0f} ms" if call.total_ms is not None else ""
    run = f" ({call.run_ms:.0f} ms in the sandbox)" if call.run_ms is not None else ""
    return Text(total + run, style="dim")


def excerpt(text: str, show: str) -> str:
    """Return one line of a result."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    line = next((line for line in lines if show and show in line), lines[0]).strip()
    clean = "".join(c if c.isprintable() else " " for c in line)
    return clean if len(clean) <= MAX_LINE_CHARS else f"{clean[: MAX_LINE_CHARS - 1]}…"
