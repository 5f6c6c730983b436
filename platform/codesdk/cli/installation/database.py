"""`codesdk migrate`, `backup` and `restore`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from codesdk.archive import backup
from codesdk.archive.restore import restore
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.cli.console.terminal import Printer, pluralize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode
from codesdk.storage.database import Database
from codesdk.storage.migration import current_revision, upgrade


def migrate(*, data_dir: Path | None, as_json: bool) -> None:
    """Apply missing migrations; does nothing if the schema is current.

    Raises:
        Fault: the database doesn't answer, or its schema is newer than this version.
    """
    settings = load_settings(data_dir)
    settings.prepare_data_dir()
    with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
        before = current_revision(database)
        upgrade(database)
        after = current_revision(database)
    printer = Printer(as_json=as_json)
    if as_json:
        printer.emit({"before": before, "after": after})
    else:
        printer.progress(
            f"The database is at revision {after}" + (f" (was at {before})" if before not in (None, after) else "")
        )


def create_backup(target: Path, *, data_dir: Path | None, as_json: bool) -> int:
    """Create a backup; the exit code is 1 if it found artifacts that were damaged before."""
    printer = Printer(as_json=as_json)
    with open_maintenance_services(load_settings(data_dir)) as record:
        made = backup.create_backup(record, target.absolute())
    size = sum(one.size for one in made.files)
    facts = made.model_dump(mode="json", exclude={"files"})
    answer = {**facts, "path": str(target), "files": len(made.files), "bytes": size}
    printer.answer(answer, f"Backed up {len(made.files)} files, {size} bytes, to {target}.")
    for content_hash in made.damaged:
        printer.warn(f"An artifact is damaged or missing, and is not in the backup: {content_hash}")
    return ExitCode.FAILED if made.damaged else ExitCode.OK


def restore_backup(source: Path, *, data_dir: Path, as_json: bool) -> None:
    """Restore a backup into a new data directory."""
    restored = restore(source.absolute(), load_settings(data_dir))
    text = (
        f"Restored {pluralize(restored.files, 'file')} into {restored.data_dir}, as instance {restored.instance}.\n"
        f"Open sessions that were closed: {restored.closed_sessions}. Running calls that ended as lost: {restored.lost_calls}."
    )
    Printer(as_json=as_json).answer(restored, text)
