"""Brings a database to this version's schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError

from codesdk.storage.database import Database, unavailable

SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(database: Database, revision: str = "head") -> None:
    """Apply every missing migration, in one transaction each. A database that is up to date is left alone.

    Raises:
        StorageUnavailable: the database does not answer or refuses.
    """
    try:
        with database.writer.begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(SCRIPTS))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except DBAPIError as error:
        raise unavailable(error) from error
