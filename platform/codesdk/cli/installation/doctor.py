"""`codesdk doctor`: prints the checks as a table."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode
from codesdk.provision.checks.check import Check, Status
from codesdk.provision.checks.doctor import run_checks, worst_status

STATUS_STYLE = {
    Status.OK: ("✓ ok", "green"),
    Status.INFO: ("· info", "dim"),
    Status.WARN: ("! warn", "yellow"),
    Status.FAIL: ("✗ fail", "bold red"),
}


def run(*, data_dir: Path | None, as_json: bool) -> int:
    """Run and print every check; the exit code is 1 if any fails."""
    printer = Printer(as_json=as_json)
    checks = run_checks(load_settings(data_dir))
    failed = worst_status(checks) is Status.FAIL
    if as_json:
        shown = [{"name": c.name, "status": c.status.value, "detail": c.detail, "mend": c.fix} for c in checks]
        printer.emit({"ok": not failed, "checks": shown})
    else:
        printer.out.print(table(checks))
    return ExitCode.FAILED if failed else ExitCode.OK


def table(checks: tuple[Check, ...]) -> Table:
    """Return a table with one row per check; the fix is below the finding."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(no_wrap=True, style="bold")
    shown.add_column(overflow="fold")
    for check in checks:
        word, style = STATUS_STYLE[check.status]
        found = Text(check.detail)
        if check.fix:
            found.append(f"\n→ {check.fix}", style="cyan")
        shown.add_row(Text(word, style=style), check.name, found)
    return shown
