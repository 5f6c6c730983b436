"""`codesdk sandbox …`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the Docker client

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import Json

sandbox_app = typer.Typer(help="Check and remove sandboxes on this machine.", no_args_is_help=True)


@sandbox_app.callback()
def _group() -> None:
    """Check and remove sandboxes on this machine."""


@sandbox_app.command("selfcheck")
def selfcheck(
    *,
    runtime: Annotated[
        str, typer.Option("--runtime", help="Container runtime to check: runc, runsc (gVisor).")
    ] = "runc",
    only: Annotated[str, typer.Option("--only", help="Probes to run, with * and ?: `escape-*`.")] = "*",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per probe.")] = False,
) -> int:
    """Try to break out of sandboxes on this machine's engine; exit 1 if a probe fails."""
    from codesdk.cli.sandboxes.selfcheck import run

    return run(runtime=runtime, only=only, as_json=json)


@sandbox_app.command("clear")
def clear(
    *,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="PATH", help="Whose sandboxes.", envvar="CODESDK_DATA_DIR")
    ] = None,
    json: Json = False,
) -> None:
    """Remove every sandbox of this installation from the engine, before you uninstall it.

    Refuses while a worker runs. Open sessions lose their workspace.
    """
    from codesdk.cli.sandboxes.remove_all import run

    run(data_dir=data_dir, as_json=json)
