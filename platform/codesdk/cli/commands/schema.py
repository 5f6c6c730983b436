"""`codesdk schema …`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for every model

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

schema_app = typer.Typer(help="Generate the JSON Schema and the event reference from the models.", no_args_is_help=True)


@schema_app.command("export")
def export(
    directory: Annotated[Path, typer.Argument(help="Output directory; created if missing.")] = Path(),
) -> None:
    """Write the JSON Schema of events, records and capabilities as one reproducible file."""
    from codesdk.cli.console.files import write
    from codesdk.cli.schema import json_schema

    write(directory / json_schema.FILE_NAME, json_schema.schema_text())


@schema_app.command("events")
def events(
    file: Annotated[Path, typer.Argument(help="Output file.")] = Path("events.md"),
) -> None:
    """Write the Markdown reference of all events."""
    from codesdk.cli.console.files import write
    from codesdk.cli.schema import events_reference

    write(file, events_reference.page())
