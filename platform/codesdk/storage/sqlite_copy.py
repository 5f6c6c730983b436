"""Copies an SQLite database consistently while it's being written."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from codesdk.errors import ExitCode, Fault
from codesdk.storage.database import Database


class CopyFailed(Fault):
    """The database couldn't be copied, or the copy is damaged."""

    code = "COPY_FAILED"
    exit_code = ExitCode.CANNOT_WRITE


def copy_database(database: Database, target: Path) -> None:
    """Copy every committed row, as of one moment, into the new file `target`, durably.

    Uses SQLite's backup API in one step: one read transaction, which in WAL mode blocks no writer.

    Raises:
        CopyFailed: the database can't be read or the copy can't be written, or the copy fails SQLite's integrity check.
    """
    try:
        with closing(database.reader.raw_connection()) as source, closing(sqlite3.connect(target)) as copy:
            source.driver_connection.backup(copy)  # type: ignore[union-attr]
            copy.execute("PRAGMA journal_mode=DELETE")  # a single file, without a WAL next to it
            found = copy.execute("PRAGMA integrity_check").fetchone()
        if found != ("ok",):
            raise CopyFailed(f"The copy of the database is damaged: {found}.", advice="Check the disk that it is on.")
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except (sqlite3.Error, OSError) as error:
        raise CopyFailed(
            f"The database cannot be copied: {error}.", advice="Free up space, or choose another directory."
        ) from error
