"""`codesdk migrate`: migrates the database to this version's schema."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from codesdk.cli.console.printer import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.storage.database import Database
from codesdk.storage.migration import current_revision, upgrade


def run(*, data_dir: Path | None, as_json: bool) -> None:
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
