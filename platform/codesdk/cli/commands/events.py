"""`codesdk events …` and `codesdk transcript`: options and help."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for everything that an import needs

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from codesdk.cli.commands.options import DataDir, Json, parse_path
from codesdk.cli.commands.transcript_format import TranscriptFormat

SHOW = "show"


class DefaultCommandGroup(TyperGroup):
    """`codesdk events SESSION` is `codesdk events show SESSION`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the command in that was left out."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


events_app = typer.Typer(
    cls=DefaultCommandGroup, help="Sessions' logs: looked at, replayed, moved, removed.", no_args_is_help=True
)
Artifacts = Annotated[
    Path | None,
    typer.Option("--with-artifacts", parser=parse_path, metavar="DIR", help="Directory of the artifacts' bytes."),
]


@events_app.command(SHOW)
def show_events(
    session: str,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Print a session's events, from the running daemon."""
    from codesdk.cli.logs.events import show

    show(session, follow=follow, data_dir=data_dir, as_json=json)


@events_app.command("export")
def export_events(
    session: Annotated[str | None, typer.Argument(help="Which; or --all.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every session, of every tenant.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", parser=parse_path, metavar="PATH", help="File (default: stdout).")
    ] = None,
    with_artifacts: Artifacts = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Write logs as JSON lines, straight from the database, also while everything runs."""
    from codesdk.cli.logs.export_import import export_to

    export_to(session, every=every, output=output, artifacts=with_artifacts, data_dir=data_dir, as_json=json)


@events_app.command("import")
def import_events(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", parser=parse_path, help="What `codesdk events export` wrote.")
    ],
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Name of the tenant that gets it (default: the one of the same id).")
    ] = None,
    with_artifacts: Artifacts = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Take exported logs in: closed sessions with the same ids and numbers; never into a log that is here already."""
    from codesdk.cli.logs.export_import import import_from

    import_from(file, tenant=tenant, artifacts=with_artifacts, data_dir=data_dir, as_json=json)


@events_app.command("prune")
def prune_events(
    *,
    older_than: Annotated[float, typer.Option("--older-than", min=0, metavar="DAYS", help="Days since it closed.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove closed sessions, each whole: log, calls, artifacts. Who asks for one is told that it was removed."""
    from codesdk.cli.logs.export_import import prune

    prune(older_than, dry=dry_run, data_dir=data_dir, as_json=json)


@events_app.command("replay")
def replay_events(session: str, *, data_dir: DataDir = None, json: Json = False) -> int:
    """Fold a log, straight from the database, and compare it with what is stored of its calls; exit 1 where they differ.

    Also names the first event that breaks an invariant of logs. No daemon is needed; beside a running one, replay a
    session while none of its calls runs.
    """
    from codesdk.cli.logs.replay import replay

    return replay(session, data_dir=data_dir, as_json=json)


def transcript(
    session: str,
    *,
    form: Annotated[TranscriptFormat, typer.Option("--format", help="For reading.")] = TranscriptFormat.MARKDOWN,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """A session as a conversation, straight from the database: who said what, which tools ran, what they answered."""
    from codesdk.cli.logs.transcript import emit

    emit(session, form=form, output=output, data_dir=data_dir, as_json=json)
