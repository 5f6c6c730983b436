"""Read-only checks of a PostgreSQL server, for `codesdk doctor`."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from sqlalchemy import text

from codesdk.storage.database import Database

MIN_SERVER_VERSION = 140000
"""`server_version_num` of PostgreSQL 14; tests run on Debian's 15, and nothing newer than 14 is used."""
_SERVER_QUERY = text(
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,"
    " pg_encoding_to_char(encoding) AS encoding, current_setting('fsync') AS fsync,"
    " current_setting('full_page_writes') AS pages, pg_is_in_recovery() AS standby,"
    " current_setting('max_connections')::int AS connections"
    " FROM pg_database WHERE datname = current_database()"
)


class ServerReport(NamedTuple):
    """What the server says."""

    name: str
    """The database as it may be shown."""
    version: str
    connections: int
    """Most connections that the server takes; each process of CodeSDK uses up to 20."""
    wrong: tuple[str, ...]
    """What breaks a promise of ours, each with what to do."""


def inspect_server(url: str) -> ServerReport:
    """Connect once and ask.

    Raises:
        DatabaseUrlWrong, StorageUnavailable: with what to do.
    """
    with closing(Database(url)) as database, database.read() as connection:
        row = connection.execute(_SERVER_QUERY).one()
    wrong = {
        "the server is older than PostgreSQL 14: upgrade it": row.number < MIN_SERVER_VERSION,
        f"its encoding is {row.encoding}: make the database anew with ENCODING 'UTF8'": row.encoding != "UTF8",
        "it is a standby, which takes no writes: use the primary": row.standby,
        "fsync is off, so a power cut loses what was acknowledged: set fsync = on": row.fsync == "off",
        "full_page_writes is off, so a power cut can damage it: set full_page_writes = on": row.pages == "off",
    }
    return ServerReport(
        database.name, row.version, row.connections, tuple(words for words, holds in wrong.items() if holds)
    )
