"""`codesdk artifacts …`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the HTTP client

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json, parse_path

artifacts_app = typer.Typer(
    help="Files that sessions start from, and outputs too large for an event.", no_args_is_help=True
)
Id = Annotated[str, typer.Argument(metavar="ARTIFACT", help="Its id.")]


@artifacts_app.command("list")
def list_artifacts(
    *,
    session: Annotated[str | None, typer.Option("--session", help="Only those of a session.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """All of them, newest first, from the running daemon."""
    from codesdk.cli.artifact_files import show

    show(session, data_dir=data_dir, as_json=json)


@artifacts_app.command("get")
def get_artifact(
    artifact: Id,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=parse_path, metavar="PATH", help="File (default: stdout).")
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Take one out; what does not have the recorded hash is not kept."""
    from codesdk.cli.artifact_files import get

    get(artifact, output, data_dir=data_dir, as_json=json)


@artifacts_app.command("put")
def put_artifact(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to keep.")],
    *,
    name: Annotated[str | None, typer.Option("--name", help="Default: the file's.")] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="Told to whoever takes it out.")
    ] = "application/octet-stream",
    session: Annotated[str | None, typer.Option("--session", help="The session that it belongs to.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Keep a file."""
    from codesdk.cli.artifact_files import put

    put(file, name=name, content_type=content_type, session=session, data_dir=data_dir, as_json=json)


@artifacts_app.command("delete")
def delete_artifact(artifact: Id, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Remove one; events that name it keep their reference."""
    from codesdk.cli.artifact_files import delete

    delete(artifact, data_dir=data_dir, as_json=json)


@artifacts_app.command("gc")
def collect_artifacts(
    *,
    strays: Annotated[
        bool,
        typer.Option(
            "--strays",
            help="Also bytes older than a day that the database does not know: only right where nobody else keeps theirs there.",
        ),
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove bytes that nothing names, now. The daemon does so every hour, strays excepted; it may run meanwhile."""
    from codesdk.cli.artifact_files import collect

    collect(strays=strays, data_dir=data_dir, as_json=json)
