"""Migrates a database to this version's schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from codesdk.errors import ExitCode, Fault, InternalFault, Unavailable
from codesdk.storage.database import Database
from codesdk.storage.engines import connect
from codesdk.storage.faults import to_fault
from codesdk.storage.timeouts import without_timeout

_ADVISORY_LOCK = text("SELECT pg_advisory_xact_lock(4907341250)")
"""Serializes processes that start together. The number is arbitrary. On SQLite, BEGIN IMMEDIATE does the same."""
_FOREIGN_KEY_CHECK = text("PRAGMA foreign_key_check")
SCRIPTS_DIR = Path(__file__).parent / "migrations"
HEAD = "0037"
"""The newest migration. Alembic would import every migration to find it: 0.1 s for each process that starts."""


class SchemaUnknown(Fault):
    """The database is at a revision that this version doesn't know."""

    code = "SCHEMA_UNKNOWN"
    exit_code = ExitCode.DATA


class SchemaBehind(Unavailable):
    """The database lacks migrations, and this process doesn't run them."""

    code = "SCHEMA_BEHIND"


def upgrade(database: Database, revision: str = "head") -> None:
    """Apply every missing migration, all in one transaction. Does nothing if the schema is current.

    Raises:
        StorageUnavailable: the database doesn't answer, or refuses.
        SchemaUnknown: a newer version has migrated it, or it isn't a CodeSDK database.
    """
    with _migration_config(database) as config:
        command.upgrade(config, revision)


def downgrade(database: Database, revision: str) -> None:
    """Revert every migration after `revision` ("base": all), with the data that only they could hold.

    Raises:
        StorageUnavailable, SchemaUnknown: as in `upgrade`; nothing was changed.
    """
    with _migration_config(database) as config:
        command.downgrade(config, revision)


@contextmanager
def _migration_config(database: Database) -> Iterator[Config]:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS_DIR))
    try:
        with (
            connect(database.writer) as connection,
            without_timeout(connection),  # rewriting a table takes as long as the table is large
            _foreign_keys_off(connection, database),
            connection.begin(),
        ):
            if not database.is_sqlite:
                connection.execute(_ADVISORY_LOCK)
            config.attributes["connection"] = connection
            yield config
            if database.is_sqlite and (broken := connection.execute(_FOREIGN_KEY_CHECK).all()):
                raise InternalFault(f"A migration would leave rows with dangling references: {broken[:3]}.")
    except DBAPIError as error:
        raise to_fault(error) from error
    except CommandError as error:
        raise SchemaUnknown(
            f"The database's version is unknown: {error}.",
            advice="Run the CodeSDK that last used it or a newer one, or give another --data-dir.",
        ) from error


@contextmanager
def _foreign_keys_off(connection: Connection, database: Database) -> Iterator[None]:
    """Disable foreign keys on SQLite, which alters a table by re-creating it; referencing rows would forbid that.

    They are checked before the commit instead. PostgreSQL alters tables in place.
    """
    driver = connection.connection.driver_connection
    if not database.is_sqlite or driver is None:
        yield
        return
    driver.execute("PRAGMA foreign_keys=OFF")  # has no effect inside a transaction
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def ensure_schema(database: Database, *, migrate: bool) -> None:
    """Make sure that the schema is current: migrate it if `migrate` is set, else only check it.

    Raises:
        SchemaBehind, SchemaUnknown: the schema differs, and this process may not or can't migrate it.
    """
    if not migrate:
        require_current_schema(database)
    elif current_revision(database) != HEAD:
        upgrade(database)


def require_current_schema(database: Database) -> None:
    """Check that the database has exactly this version's schema. Changes nothing.

    Raises:
        StorageUnavailable: the database doesn't answer, or refuses.
        SchemaBehind: migrations are missing. SchemaUnknown: as in `upgrade`.
    """
    found = current_revision(database)
    if found == HEAD:
        return
    if found is None or found in {script.revision for script in ScriptDirectory(str(SCRIPTS_DIR)).walk_revisions()}:
        raise SchemaBehind(
            f"The database is at revision {found or 'none'}; this version needs {HEAD}.",
            advice="Run `codesdk migrate`, with CODESDK_DATABASE_URL of a role that may change the schema.",
        )
    raise SchemaUnknown(
        f"The database is at revision {found}, which this version does not know.",
        advice="Run the CodeSDK that last used it or a newer one.",
    )


def current_revision(database: Database) -> str | None:
    """Return the database's revision. None if it has no migration.

    Raises:
        StorageUnavailable: the database doesn't answer, or refuses.
    """
    with database.read() as connection:
        try:
            return MigrationContext.configure(connection).get_current_revision()
        except DBAPIError as error:
            raise to_fault(error) from error
