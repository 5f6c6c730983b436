"""Database URLs: normalises the accepted forms and hides the password in output."""

from __future__ import annotations

import itertools

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from codesdk.errors import ExitCode, Fault

_ADVICE = "Correct CODESDK_DATABASE_URL, or unset it to use SQLite in the data directory."
_DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",  # the form that hosting services hand out
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""The accepted schemes, and the driver for each."""

MEMORY_VFS = "memdb"
"""SQLite's in-memory file system (since 3.36)."""
_NUMBERS = itertools.count()


class DatabaseUrlWrong(Fault):
    """The database URL is invalid or unsupported."""

    code = "DATABASE_URL_WRONG"
    exit_code = ExitCode.USAGE


def parse_url(text: str) -> URL:
    """Parse a URL and select its driver.

    Raises:
        DatabaseUrlWrong: the URL is invalid, or names an unsupported database. The message doesn't repeat the URL,
            which
            may contain a password.
    """
    try:
        url = make_url(text)
        driver = _DRIVERS.get(url.drivername)
        if driver is None:
            raise DatabaseUrlWrong(
                f"The database's URL begins with {url.drivername}://, which is not supported.",
                advice=f"It must begin with sqlite:/// or postgresql://. {_ADVICE}",
            )
    except (ArgumentError, ValueError) as error:
        # The parser's message repeats the URL.
        raise DatabaseUrlWrong("The database's URL cannot be read.", advice=_ADVICE) from error
    url = url.set(drivername=driver)
    return _new_memory_url() if driver == "sqlite" and url.database in (None, "", ":memory:") else url


def is_in_memory(url: URL) -> bool:
    """Return whether the database ends with its last connection."""
    return url.query.get("vfs") == MEMORY_VFS


def _new_memory_url() -> URL:
    # A plain `:memory:` belongs to one connection, and with a shared cache readers fail instead of waiting. A memdb is
    # shared by all connections of the process that use its name, with a file's locking.
    name = f"file:/codesdk-{next(_NUMBERS)}"
    return URL.create("sqlite", database=name, query={"vfs": MEMORY_VFS, "uri": "true"})


def display_url(url: URL) -> str:
    """Render the URL for display, without password and options (an option may be a password, too)."""
    if is_in_memory(url):
        return "sqlite in memory"
    bare = URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database)
    socket = url.query.get("host")
    return f"{bare.render_as_string()} on {socket}" if isinstance(socket, str) else bare.render_as_string()
