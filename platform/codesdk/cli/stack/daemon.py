"""`codesdkd`: runs the stack for a program that started it, and ends with that program."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, SandboxKind, parse_path
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.entrypoint import run_program
from codesdk.cli.sandboxes.backend_choice import apply_sandbox_choice
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack

program = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@program.command()
def daemon(
    *,
    data_dir: DataDir = None,
    policies: Annotated[
        Path | None,
        typer.Option(
            "--policies", parser=parse_path, help="Directory of the policy bundle, or the name of a shipped one."
        ),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="Profile whose image is built before the start.")
    ] = "default",
    sandbox: Annotated[SandboxKind | None, typer.Option("--sandbox", help="Where sandboxes run.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave sessions and sandboxes open at the end.")] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="End when the process that started this one has ended.")
    ] = False,
) -> None:
    """Run API, MCP host and worker until SIGINT or SIGTERM.

    When they are ready, stdout gets one line of JSON: `url`, `key` (an operator's API key), `data_dir` and `pid`. Progress
    goes to stderr.
    """
    parent = os.getppid()
    printer = Printer()
    settings = apply_sandbox_choice(load_settings(data_dir, policies, port), sandbox, printer.warn)
    signals = Signals()

    def stopping(seconds: float) -> bool:
        return signals.wait_for_stop(seconds) or (with_parent and os.getppid() != parent)

    try:
        with Stack(settings, printer.progress, profile, keep=keep) as stack:
            signals.ignore_from_now()
            ready = {"url": stack.daemon.url, "key": stack.key, "data_dir": str(settings.data_dir), "pid": os.getpid()}
            print(json.dumps(ready), flush=True)  # noqa: T201 (the line that the parent reads)
            stack.watch(printer.warn, stopping)
            printer.progress("Stopping")
    finally:
        signals.ignore_from_now()


def main() -> None:
    """Run the program and exit with its code."""
    sys.exit(run_program(program, "codesdkd", sys.argv[1:]))


if __name__ == "__main__":
    main()
