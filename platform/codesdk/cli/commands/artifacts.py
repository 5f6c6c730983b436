"""`codesdk artifacts …`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the HTTP client

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json, parse_path

artifacts_app = typer.Typer(
    help="Manage files that sessions start from and outputs too large for an event.", no_args_is_help=True
)
Id = Annotated[str, typer.Argument(metavar="ARTIFACT", help="Artifact id.")]


@artifacts_app.command("list")
def list_artifacts(
    *,
    session: Annotated[str | None, typer.Option("--session", help="Only artifacts of this session.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """List artifacts of the running daemon, newest first."""
    from codesdk.cli.artifact_files import show

    show(session, data_dir=data_dir, as_json=json)


@artifacts_app.command("get")
def get_artifact(
    artifact: Id,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=parse_path, metavar="PATH", help="Output file (default: stdout)."),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Download an artifact and verify its hash."""
    from codesdk.cli.artifact_files import get

    get(artifact, output, data_dir=data_dir, as_json=json)


@artifacts_app.command("put")
def put_artifact(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to upload.")],
    *,
    name: Annotated[str | None, typer.Option("--name", help="Artifact name (default: the file's name).")] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="Media type for downloads.")
    ] = "application/octet-stream",
    session: Annotated[str | None, typer.Option("--session", help="Session that owns it.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Upload a file as an artifact."""
    from codesdk.cli.artifact_files import put

    put(file, name=name, content_type=content_type, session=session, data_dir=data_dir, as_json=json)


@artifacts_app.command("delete")
def delete_artifact(artifact: Id, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Delete an artifact; events that refer to it keep the reference."""
    from codesdk.cli.artifact_files import delete

    delete(artifact, data_dir=data_dir, as_json=json)


@artifacts_app.command("gc")
def collect_artifacts(
    *,
    delete_unknown: Annotated[
        bool,
        typer.Option(
            "--strays",
            help="Also delete blobs older than a day that this database doesn't know. Unsafe if others share the store.",
        ),
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Delete unreferenced artifact bytes now. The daemon does this hourly, except --strays. Safe while it runs."""
    from codesdk.cli.artifact_files import collect

    collect(delete_unknown=delete_unknown, data_dir=data_dir, as_json=json)
