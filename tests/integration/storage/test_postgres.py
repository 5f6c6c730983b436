"""A PostgreSQL server that refuses, restarts, is full or read-only."""

from __future__ import annotations

import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from codesdk.provision.checks.doctor import database as doctor
from codesdk.storage.database import Database
from codesdk.storage.faults import (
    ConnectionsExhausted,
    DatabaseGone,
    DatabaseLocked,
    DatabaseLoginRefused,
    DatabaseReadOnly,
    StorageUnavailable,
)
from codesdk.storage.migration import upgrade
from codesdk.storage.server_check import inspect_server
from codesdk.storage.writer import Writer
from databases import POSTGRES_DIRECTORY
from postgres_cluster import PostgresMissing, ensure, remove_unused
from stage import DEADLINE_S, wait_for

pytestmark = pytest.mark.postgres


@pytest.fixture
def database_kind():
    return "postgresql"


@pytest.fixture
def server(postgres_server):
    """A cluster of the test's own, to restart and to break. Not below tmp_path, which is root's alone."""
    place = Path(tempfile.mkdtemp(prefix=POSTGRES_DIRECTORY))
    made = ensure(place, lambda _: None)
    yield made
    made.stop()
    assert not place.exists()


@pytest.fixture
def url(databases):
    return databases.empty()


@pytest.fixture
def database(url):
    made = Database(url)
    yield made
    made.close()


@pytest.fixture
def writer(database):
    made = Writer(database)
    made.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")))
    yield made
    made.close()


def ask(url):
    with closing(Database(url)) as database, database.read() as connection:
        return connection.execute(text("SELECT 1")).scalar()


def insert(number, content="x"):
    return lambda unit: unit.connection.execute(text("INSERT INTO t VALUES(:a, :b)"), {"a": number, "b": content})


def rows(database):
    with database.read() as connection:
        return list(connection.execute(text("SELECT a FROM t ORDER BY a")).scalars())


def end_connections(postgres_server, database):
    name = database.url.database
    with closing(Database(postgres_server.url)) as other, other.read() as connection:
        connection.execute(
            text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
        )


def test_a_wrong_password_is_told_and_not_shown(postgres_server):
    with pytest.raises(DatabaseLoginRefused) as refused:
        ask(postgres_server.url_of("postgres", password="hunter2"))
    assert "hunter2" not in str(refused.value)
    assert not refused.value.retryable


@pytest.mark.parametrize("given", [{"database": "none"}, {"database": "postgres", "user": "nobody"}])
def test_an_unknown_database_or_user_is_told(postgres_server, given):
    with pytest.raises(DatabaseLoginRefused):
        ask(postgres_server.url_of(**given))


def test_a_server_that_is_not_there_is_told(tmp_path):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        for url in (f"postgresql://u:hunter2@127.0.0.1:{taken.getsockname()[1]}/x", f"postgresql:///x?host={tmp_path}"):
            with pytest.raises(DatabaseGone) as gone:
                ask(url)
            assert "hunter2" not in str(gone.value)
            assert gone.value.retryable


def test_too_many_connections_are_told(postgres_server, url):
    name = url.partition("@/")[2].partition("?")[0]
    with closing(Database(postgres_server.url)) as other, other.read() as connection:
        connection.execute(text("DROP ROLE IF EXISTS limited"))
        connection.execute(text("CREATE ROLE limited LOGIN PASSWORD 'limited' CONNECTION LIMIT 1"))
    limited = postgres_server.url_of(name, user="limited", password="limited")
    with closing(Database(limited)) as first, first.read() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(ConnectionsExhausted):
            ask(limited)
    assert wait_for(lambda: ask(limited), "a free connection") == 1


def test_a_process_with_all_its_readers_in_use_says_so(database, monkeypatch):
    monkeypatch.setattr(database.reader.pool, "_timeout", 0.05)
    with ExitStack() as held:
        for _ in range(20):
            held.enter_context(database.read())
        with pytest.raises(ConnectionsExhausted), database.read():
            pass


def test_a_server_that_takes_no_writes_is_told(postgres_server, database, writer):
    name = database.url.database
    with closing(Database(postgres_server.url)) as other, other.read() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    end_connections(postgres_server, database)
    with pytest.raises(DatabaseReadOnly):
        writer.run(insert(1))


def test_a_lock_that_is_held_too_long_is_told(database, writer, url):
    writer.run(lambda unit: unit.connection.execute(text("SET lock_timeout = 50")))
    with closing(Database(url)) as another, another.writer.connect() as other:
        other.execute(text("LOCK TABLE t"))
        with pytest.raises(DatabaseLocked):
            writer.run(insert(1))
    writer.run(insert(1))
    assert rows(database) == [1]


def test_a_unit_that_waits_for_a_lock_in_vain_is_told_after_one_wait_and_its_group_goes_on(database, writer, url):
    writer.run(insert(1))
    writer.run(lambda unit: unit.connection.execute(text("SET lock_timeout = 300")))
    tries, entered, hold = [], threading.Event(), threading.Event()

    def stuck(unit):
        tries.append(unit)
        unit.connection.execute(text("UPDATE t SET b = 'y' WHERE a = 1"))

    def first(_unit):
        entered.set()
        assert hold.wait(DEADLINE_S)

    with closing(Database(url)) as another, another.writer.connect() as other, ThreadPoolExecutor(4) as pool:
        other.execute(text("SELECT a FROM t WHERE a = 1 FOR UPDATE"))
        held = pool.submit(writer.run, first)
        assert entered.wait(DEADLINE_S)
        group = []
        for waiting, work in enumerate((insert(2), stuck, insert(3)), start=1):  # while the first is at work
            group.append(pool.submit(writer.run, work))
            wait_for(lambda count=waiting: writer._jobs.qsize() == count, "it to be handed in")
        hold.set()
        held.result(DEADLINE_S)
        told = [each.exception(DEADLINE_S) for each in group]
    assert [type(each) for each in told] == [type(None), DatabaseLocked, type(None)]
    assert (len(tries), rows(database)) == (1, [1, 2, 3])


def test_connections_that_the_server_ended_cost_nobody_an_error(postgres_server, database, writer):
    assert rows(database) == []
    end_connections(postgres_server, database)
    writer.run(insert(1))
    assert rows(database) == [1]


def test_a_server_that_ends_each_connection_as_soon_as_it_is_made_is_gone(postgres_server, database, writer):
    """As one does that crashes again and again."""

    def end(_connection, _record):
        end_connections(postgres_server, database)

    with ExitStack() as lifted:
        for engine in (database.reader, database.writer):
            engine.dispose()
            event.listen(engine, "connect", end)
            lifted.callback(event.remove, engine, "connect", end)
        with pytest.raises(DatabaseGone) as gone:
            rows(database)
        assert gone.value.retryable
        with pytest.raises(DatabaseGone):
            writer.run(insert(1))
        with pytest.raises(DatabaseGone):
            upgrade(database)
    writer.run(insert(1))
    assert rows(database) == [1]


def test_a_connection_that_breaks_before_the_commit_is_made_anew_and_the_unit_is_run_again(
    postgres_server, database, writer
):
    tries = []

    def work(unit):
        insert(1)(unit)
        tries.append(unit)
        if len(tries) == 1:
            end_connections(postgres_server, database)
        insert(2)(unit)

    writer.run(work)
    assert (len(tries), rows(database)) == (2, [1, 2])


def test_a_connection_that_breaks_in_the_commit_is_told_and_nothing_is_run_again(
    postgres_server, database, writer, monkeypatch
):
    tries = []

    def work(unit):
        tries.append(unit)
        insert(1)(unit)
        unit.at_end("z", lambda _connection: end_connections(postgres_server, database))

    with pytest.raises(DatabaseGone):
        writer.run(work)
    assert (len(tries), rows(database)) == (1, [])
    writer.run(insert(2))


def test_two_writers_that_lock_each_other_out_both_succeed(database, writer, url):
    other_database = Database(url)
    other = Writer(other_database)
    other.run(lambda unit: (insert(1)(unit), insert(2)(unit)))
    both = threading.Barrier(2)
    tries = []

    def crossing(first, second):
        def work(unit):
            tries.append(first)
            add = text("UPDATE t SET b = b || 'y' WHERE a = :a")
            unit.connection.execute(add, {"a": first})
            if len(tries) <= 2:
                both.wait(DEADLINE_S)
            unit.connection.execute(add, {"a": second})

        return work

    threads = [
        threading.Thread(target=writer.run, args=(crossing(1, 2),)),
        threading.Thread(target=other.run, args=(crossing(2, 1),)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    with database.read() as connection:
        assert set(connection.execute(text("SELECT b FROM t")).scalars()) == {"xyy"}
    assert len(tries) == 3, "one of them was the deadlock's victim, and ran again"
    other.close()
    other_database.close()


def test_a_restart_of_the_server_needs_no_restart_of_the_process(server):
    with closing(Database(server.url)) as database, closing(Writer(database)) as writer:
        writer.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")))
        for number, crash in enumerate((False, True)):
            server.restart(crash=crash)
            writer.run(insert(number))
            assert rows(database) == list(range(number + 1))


def test_what_was_acknowledged_survives_a_server_that_crashes_under_load(server):
    acknowledged, refused = [], []
    stop = threading.Event()
    database = Database(server.url)
    writer = Writer(database)
    writer.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")))

    def load(start):
        number = start
        while not stop.is_set():
            try:
                writer.run(insert(number))
            except StorageUnavailable as fault:
                refused.append(fault)
                stop.wait(0.02)
            else:
                acknowledged.append(number)
            number += 4

    threads = [threading.Thread(target=load, args=(start,)) for start in range(4)]
    try:
        for thread in threads:
            thread.start()
        for crash in (True, False, True):
            before = len(acknowledged)
            wait_for(lambda before=before: len(acknowledged) > before + 20, "some rows", 30)
            server.restart(crash=crash)
        before = len(acknowledged)
        wait_for(lambda: len(acknowledged) > before + 20, "rows after the last restart", 30)
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not set(acknowledged) - set(rows(database))
        assert [str(fault) for fault in refused if not isinstance(fault, DatabaseGone)] == []
    finally:
        stop.set()
        writer.close()
        database.close()


def test_the_writers_commits_are_synchronous_whatever_the_server_says(database, writer):
    def look_at(unit):
        return unit.connection.execute(text("SELECT current_setting('synchronous_commit')")).scalar()

    assert writer.run(look_at) == "on"


def test_doctor_says_what_is_there_and_what_breaks_a_promise(postgres_server, url):
    seen = inspect_server(url)
    assert any(words.startswith("fsync is off") for words in seen.wrong)
    check = doctor(url)
    assert "PostgreSQL" in check.detail
    assert "fsync" in check.fix
    assert postgres_server.password not in repr((seen, check))
    assert "CODESDK_DATABASE_URL" in doctor(postgres_server.url_of("postgres", password="hunter2")).fix


def test_what_a_killed_run_left_is_stopped_and_removed(server):
    assert not remove_unused(server.directory), "it is in use"
    server._share._users.close()  # what the kernel does for a killed process
    assert remove_unused(server.directory)
    assert not server.process.alive
    assert not server.directory.exists()
    server._share = None


def test_a_cluster_that_does_not_start_says_why(server):
    with (server.directory / "data" / "postgresql.conf").open("a") as conf:
        conf.write("nonsense = 1\n")
    with pytest.raises(PostgresMissing, match="nonsense"):
        server.restart()
