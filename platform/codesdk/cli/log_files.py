"""`codesdk events export`, `import` and `prune`, on the database itself."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from codesdk.archive.export import Exported, export
from codesdk.archive.imports import take_in
from codesdk.archive.retention import DAY_S, Retention
from codesdk.bootstrap.record import open_record
from codesdk.cli.artifact_files import FileRefused
from codesdk.cli.office import HOLDER
from codesdk.cli.places import settings_of
from codesdk.cli.plain import counted
from codesdk.cli.schema.files import private
from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode, Fault


class NothingNamed(Fault):
    """Neither a session nor all of them, or both."""

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
    """Write an export to a file, whole or not at all, or to stdout.

    Raises:
        NothingNamed, FileRefused: the command line is wrong, or a file cannot be written.
    """
    if (session is None) != every:
        raise NothingNamed("Name a session, or --all.", advice="See `codesdk sessions list`.")
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        if output is None:
            export(record, sys.stdout, session, artifacts)
            sys.stdout.flush()
            return
        fresh = output.with_name(f".{output.name}-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            # An export holds every input and output in plain.
            with open(fresh, "x", encoding="utf-8", newline="\n", opener=private) as file:
                done = export(record, file, session, artifacts)
            fresh.rename(output)
        except OSError as error:
            raise FileRefused(f"The export cannot be written: {error}.", advice="Name another --output.") from error
        finally:
            fresh.unlink(missing_ok=True)
    _say_exported(voice, done, output)


def import_from(
    file: Path, *, tenant: str | None, artifacts: Path | None, data_dir: Path | None, as_json: bool
) -> None:
    """Take an export in.

    Raises:
        FileRefused: it cannot be read.
    """
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        try:
            done = take_in(record, file, tenant, artifacts)
        except OSError as error:
            raise FileRefused(f"{file} cannot be read: {(error.strerror or str(error)).lower()}.") from error
    if as_json:
        voice.give(done.model_dump())
    else:
        voice.out.print(f"Imported {_told(done.sessions, done.events, done.artifacts)}.")


def prune(days: float, *, dry: bool, data_dir: Path | None, as_json: bool) -> None:
    """Remove closed sessions."""
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        retention = Retention(
            database=record.database, writer=record.writer, artifacts=record.artifacts, clock=record.clock
        )
        done = retention.prune(
            days * DAY_S, reason=f"`codesdk events prune --older-than {days:g}`", actor=HOLDER.id, dry=dry
        )
    said = _told(len(done.sessions), done.events, done.artifacts)
    if as_json:
        voice.give(done.model_dump() | {"dry_run": dry})
    elif dry:
        voice.out.print(f"{said} would be removed.")
    else:
        voice.out.print(f"Removed {said}; the artifacts' bytes go in a day.")


def _told(sessions: int, events: int, artifacts: int) -> str:
    return f"{counted(sessions, 'session')}, {counted(events, 'event')}, {counted(artifacts, 'artifact')}"


def _say_exported(voice: Voice, done: Exported, output: Path) -> None:
    if voice.as_json:
        voice.give(done.model_dump() | {"path": str(output)})
    else:
        said = _told(done.sessions, done.events, done.artifacts)
        voice.out.print(f"Exported {said} to {output}.", soft_wrap=True)
