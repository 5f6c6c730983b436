"""`codesdk migrate`: brings the database to this version's schema, and ends."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from codesdk.cli.places import settings_of
from codesdk.cli.voice import Voice
from codesdk.storage.database import Database
from codesdk.storage.migration import revision_of, upgrade


def run(*, data_dir: Path | None, as_json: bool) -> None:
    """Apply what is missing; a database that is up to date is left alone.

    Raises:
        Fault: the database does not answer, or is not of this version.
    """
    settings = settings_of(data_dir)
    settings.prepare_data_dir()
    with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
        before = revision_of(database)
        upgrade(database)
        after = revision_of(database)
    voice = Voice(as_json=as_json)
    if as_json:
        voice.give({"before": before, "after": after})
    else:
        voice.say(
            f"The database is at revision {after}" + (f" (was at {before})" if before not in (None, after) else "")
        )
