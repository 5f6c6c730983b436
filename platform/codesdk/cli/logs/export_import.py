"""`codesdk events export`, `import` and `prune`, directly on the database."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from codesdk.archive.log_export import export_logs
from codesdk.archive.log_import import import_logs
from codesdk.archive.retention import DAY_S, Retention
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.cli.admin import DATA_DIRECTORY_PRINCIPAL
from codesdk.cli.artifact_files import FileRefused
from codesdk.cli.console.files import private_opener
from codesdk.cli.console.terminal import Printer, pluralize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode, Fault


class NoSessionSelected(Fault):
    """Neither a session nor `--all` was given, or both."""

    code = "NOTHING_NAMED"
    status = 400
    exit_code = ExitCode.USAGE


def export_to(
    session: str | None,
    *,
    every: bool,
    output: Path | None,
    artifacts: Path | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Write an export to a file atomically, or to stdout.

    Raises:
        NoSessionSelected, FileRefused: the command line is wrong, or a file can't be written.
    """
    if (session is None) != every:
        raise NoSessionSelected("Name a session, or --all.", advice="See `codesdk sessions list`.")
    with open_maintenance_services(load_settings(data_dir)) as record:
        if output is None:
            export_logs(record, sys.stdout, session, artifacts)
            sys.stdout.flush()
            return
        fresh = output.with_name(f".{output.name}-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            # An export contains all inputs and outputs in plain text.
            with open(fresh, "x", encoding="utf-8", newline="\n", opener=private_opener) as file:
                done = export_logs(record, file, session, artifacts)
            fresh.rename(output)
        except OSError as error:
            raise FileRefused(f"The export cannot be written: {error}.", advice="Name another --output.") from error
        finally:
            fresh.unlink(missing_ok=True)
    text = f"Exported {_summary(done.sessions, done.events, done.artifacts)} to {output}."
    Printer(as_json=as_json).answer(done.model_dump() | {"path": str(output)}, text)


def import_from(
    file: Path, *, tenant: str | None, artifacts: Path | None, data_dir: Path | None, as_json: bool
) -> None:
    """Import an export.

    Raises:
        FileRefused: it can't be read.
    """
    with open_maintenance_services(load_settings(data_dir)) as record:
        try:
            done = import_logs(record, file, tenant, artifacts)
        except OSError as error:
            raise FileRefused(f"{file} cannot be read: {(error.strerror or str(error)).lower()}.") from error
    Printer(as_json=as_json).answer(done, f"Imported {_summary(done.sessions, done.events, done.artifacts)}.")


def prune(days: float, *, dry: bool, data_dir: Path | None, as_json: bool) -> None:
    """Remove old closed sessions."""
    with open_maintenance_services(load_settings(data_dir)) as record:
        retention = Retention(
            database=record.database, writer=record.writer, artifacts=record.artifacts, clock=record.clock
        )
        done = retention.prune(
            days * DAY_S,
            reason=f"`codesdk events prune --older-than {days:g}`",
            actor=DATA_DIRECTORY_PRINCIPAL.id,
            dry=dry,
        )
    summary = _summary(len(done.sessions), done.events, done.artifacts)
    text = (
        f"{summary} would be removed." if dry else f"Removed {summary}; the artifacts' bytes are deleted within a day."
    )
    Printer(as_json=as_json).answer(done.model_dump() | {"dry_run": dry}, text)


def _summary(sessions: int, events: int, artifacts: int) -> str:
    return f"{pluralize(sessions, 'session')}, {pluralize(events, 'event')}, {pluralize(artifacts, 'artifact')}"
