from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from codesdk.storage.database import Database, DatabaseUrlWrong
from codesdk.storage.faults import to_fault
from codesdk.storage.migration import upgrade
from codesdk.storage.writer import Writer
from databases import ON_BOTH
from stage import DEADLINE_S


@pytest.mark.parametrize("url", ["nonsense", "mongo://x/y", "postgresql+nodriver://x/y"])
def test_a_url_that_names_no_database_says_which_setting_is_wrong(url):
    with pytest.raises(DatabaseUrlWrong) as wrong:
        Database(url)
    assert "CODESDK_DATABASE_URL" in str(wrong.value)


def test_a_new_database_is_private_wherever_it_lies(tmp_path):
    tmp_path.chmod(0o755)
    database = Database(f"sqlite:///{tmp_path / 'codesdk.db'}")
    upgrade(database)
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    database.close()
    assert modes["codesdk.db"] == 0
    assert set(modes.values()) == {0}


def test_a_database_in_memory_is_one_for_every_thread_and_gone_at_the_end():
    database = Database.in_memory()
    upgrade(database)
    with database.writer.begin() as connection:
        connection.execute(text("INSERT INTO tenants (id, name, created_at) VALUES('ten', 'x', 0)"))

    def count(_):
        with database.read() as connection:
            return connection.execute(text("SELECT count(*) FROM tenants")).scalar()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(count, range(8))) == [1] * 8
    url = database.url.render_as_string()
    database.close()
    with closing(Database(url)) as again, again.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0


def test_two_databases_in_memory_are_two():
    with closing(Database("sqlite:///:memory:")) as one, closing(Database("sqlite://")) as other:
        with one.writer.begin() as connection:
            connection.execute(text("CREATE TABLE t(a)"))
        with other.read() as connection:
            assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0


@ON_BOTH
def test_a_connection_that_is_in_use_at_the_end_closes_when_it_is_returned(databases):
    database = Database(databases.migrated())
    with database.read() as early:
        database.close()
        with database.writer.begin() as late:  # of a thread that has not noticed yet
            connections = [of.connection.dbapi_connection for of in (early, late)]
            assert [_is_open(connection) for connection in connections] == [True, True]
    assert [_is_open(connection) for connection in connections] == [False, False]


def _is_open(connection):
    try:
        connection.cursor().close()
    except (psycopg.Error, sqlite3.Error):
        return False
    return True


def test_a_reader_in_memory_sees_nothing_that_is_not_committed():
    with closing(Database.in_memory()) as database, closing(Writer(database)) as writer:
        writer.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a)")))
        inside, leave = threading.Event(), threading.Event()

        def breaks(unit):
            unit.connection.execute(text("INSERT INTO t VALUES(1)"))
            inside.set()
            leave.wait(0.2)
            raise ValueError("mine")

        def count():
            inside.wait(DEADLINE_S)
            with database.read() as connection:
                return connection.execute(text("SELECT count(*) FROM t")).scalar()

        with ThreadPoolExecutor(2) as threads:
            writing, looking = threads.submit(writer.run, breaks), threads.submit(count)
            assert looking.result(DEADLINE_S) == 0
            assert isinstance(writing.exception(DEADLINE_S), ValueError)


@pytest.mark.parametrize(
    "refused",
    [
        psycopg.errors.StringDataRightTruncation("value too long for type character varying(40)"),
        psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"),
    ],
)
def test_a_value_that_the_database_cannot_hold_is_the_callers_fault(refused):
    fault = to_fault(DBAPIError("SELECT secret", {"secret": "x"}, refused))
    assert (fault.code, fault.status, fault.retryable) == ("VALUE_REFUSED", 422, False)
    assert "secret" not in str(fault)
