"""The database: one engine for reads, one for the writer. SQLite and PostgreSQL share the code path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from codesdk.storage import engines
from codesdk.storage.expressions import database_now
from codesdk.storage.faults import StorageUnavailable, to_fault
from codesdk.storage.timeouts import ANSWER_TIMEOUT_S, ServerTimeouts
from codesdk.storage.url import DatabaseUrlWrong, display_url, is_in_memory, parse_url

__all__ = ["Database", "DatabaseUrlWrong", "StorageUnavailable", "database_now", "to_fault"]


class Database:
    """Two engines on one URL. Reads are short and see only committed rows."""

    def __init__(self, url: str, answer_s: float = ANSWER_TIMEOUT_S) -> None:
        """Create the engines. Connects only to an in-memory database, because that ends with its last connection.

        Args:
            url: the database URL.
            answer_s: seconds of silence after which a PostgreSQL server counts as gone; 0: no limit.

        Raises:
            DatabaseUrlWrong: the URL is invalid, or names an unsupported database.
        """
        self.url = parse_url(url)
        self.name = display_url(self.url)
        """The database's name for display."""
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        make = engines.sqlite if self.is_sqlite else partial(engines.postgresql, timeouts=ServerTimeouts(answer_s))
        self.reader: Engine = make(self.url, writes=False)
        self.writer: Engine = make(self.url, writes=True)
        self._memory_anchor = self.reader.connect() if is_in_memory(self.url) else None

    @classmethod
    def in_memory(cls) -> Self:
        """Create a database that lives in this process until `close`, for tests and for embedding without a record.

        Statements, locks and writer are those of a file database. Nothing is durable or visible to other processes.
        """
        return cls("sqlite:///:memory:")

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Provide a connection for a short read.

        Raises:
            StorageUnavailable: the database doesn't answer.
        """
        try:
            with engines.connect(self.reader) as connection:
                yield connection
        except (DBAPIError, PoolTimeout) as error:
            raise to_fault(error) from error

    def close(self) -> None:
        """Close every connection; one that is in use closes when it is returned."""
        if self._memory_anchor is not None:
            self._memory_anchor.close()
        for engine in (self.reader, self.writer):
            engines.close(engine)
