"""`codesdk events …` and `codesdk transcript`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for everything that an import needs

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from codesdk.cli.commands.options import DataDir, Json, parse_path

SHOW = "show"


class TranscriptFormat(StrEnum):
    """How a transcript is written."""

    MARKDOWN = "markdown"
    HTML = "html"


class DefaultCommandGroup(TyperGroup):
    """`codesdk events SESSION` runs `codesdk events show SESSION`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Insert the default command if none is given."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


events_app = typer.Typer(
    cls=DefaultCommandGroup, help="Show, replay, export, import and remove session logs.", no_args_is_help=True
)
Artifacts = Annotated[
    Path | None,
    typer.Option("--with-artifacts", parser=parse_path, metavar="DIR", help="Directory for artifact bytes."),
]


@events_app.command(SHOW)
def show_events(
    session: str,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new events.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Print a session's events, from the running daemon."""
    from codesdk.cli.logs.events import show

    show(session, follow=follow, data_dir=data_dir, as_json=json)


@events_app.command("export")
def export_events(
    session: Annotated[str | None, typer.Argument(help="Session id; or --all.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Export every session of every tenant.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=parse_path, metavar="PATH", help="File (default: stdout).")
    ] = None,
    with_artifacts: Artifacts = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Write logs as JSON lines, directly from the database, even while everything runs."""
    from codesdk.cli.logs.export_import import export_to

    export_to(session, every=every, output=output, artifacts=with_artifacts, data_dir=data_dir, as_json=json)


@events_app.command("import")
def import_events(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=parse_path, help="File from `codesdk events export`.")],
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Target tenant's name (default: the tenant with the same id).")
    ] = None,
    with_artifacts: Artifacts = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Import exported logs as closed sessions with the same ids. Refuses sessions that already exist here."""
    from codesdk.cli.logs.export_import import import_from

    import_from(file, tenant=tenant, artifacts=with_artifacts, data_dir=data_dir, as_json=json)


@events_app.command("prune")
def prune_events(
    *,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, metavar="DAYS", help="Days since the session closed.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove closed sessions with log, calls and artifacts. Later requests for one report that it was removed."""
    from codesdk.cli.logs.export_import import prune

    prune(older_than, dry=dry_run, data_dir=data_dir, as_json=json)


@events_app.command("replay")
def replay_events(session: str, *, data_dir: DataDir = None, json: Json = False) -> int:
    """Replay a session's log from the database and compare it with the stored calls; exit 1 if they differ.

    Also reports the first event that breaks a log invariant. Needs no daemon; if one runs, replay a session while none of
    its calls is running.
    """
    from codesdk.cli.logs.replay import replay

    return replay(session, data_dir=data_dir, as_json=json)


def transcript(
    session: str,
    *,
    form: Annotated[TranscriptFormat, typer.Option("--format", help="Output format.")] = TranscriptFormat.MARKDOWN,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file (default: stdout).")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Print a session as a conversation, directly from the database: messages, tool calls and results."""
    from codesdk.cli.logs.transcript import emit

    emit(session, form=form, output=output, data_dir=data_dir, as_json=json)
