"""Read-only checks of a PostgreSQL server, for `codesdk doctor`."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from sqlalchemy import text

from codesdk.storage.database import Database

MIN_SERVER_VERSION = 140000
"""`server_version_num` of PostgreSQL 14, the oldest supported version; tests run on Debian's 15."""
_SERVER_QUERY = text(
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,"
    " pg_encoding_to_char(encoding) AS encoding, current_setting('fsync') AS fsync,"
    " current_setting('full_page_writes') AS pages, pg_is_in_recovery() AS standby,"
    " current_setting('max_connections')::int AS connections"
    " FROM pg_database WHERE datname = current_database()"
)


class ServerReport(NamedTuple):
    """A PostgreSQL server's version and settings."""

    name: str
    """The database's name for display."""
    version: str
    connections: int
    """The server's `max_connections`. Each CodeSDK process uses up to 20."""
    wrong: tuple[str, ...]
    """Settings that break a guarantee, each with the fix."""


def inspect_server(url: str) -> ServerReport:
    """Connect once and read the server's version and settings.

    Raises:
        DatabaseUrlWrong, StorageUnavailable: with advice.
    """
    with closing(Database(url)) as database, database.read() as connection:
        row = connection.execute(_SERVER_QUERY).one()
    wrong = {
        "the server is older than PostgreSQL 14: upgrade it": row.number < MIN_SERVER_VERSION,
        f"its encoding is {row.encoding}: create it again with ENCODING 'UTF8'": row.encoding != "UTF8",
        "it is a standby, which accepts no writes: use the primary": row.standby,
        "fsync is off, so a power cut loses what was acknowledged: set fsync = on": row.fsync == "off",
        "full_page_writes is off, so a power cut can damage it: set full_page_writes = on": row.pages == "off",
    }
    return ServerReport(
        database.name, row.version, row.connections, tuple(words for words, holds in wrong.items() if holds)
    )
