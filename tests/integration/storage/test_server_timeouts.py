"""A PostgreSQL that hangs, is locked or slow: callers get an error in bounded time, and nothing is lost.

A server's process for one connection is stopped, as a whole server would be: the kernel keeps the connection open, and
nothing is answered.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from sqlalchemy import text

from codesdk.storage import timeouts
from codesdk.storage import writer as writing
from codesdk.storage.database import Database
from codesdk.storage.faults import CommitIndeterminate, DatabaseGone, DatabaseLocked, StatementTimeout
from codesdk.storage.migration import _migration_config
from codesdk.storage.timeouts import NO_TIMEOUT, ServerTimeouts, without_timeout
from codesdk.storage.writer import Writer
from stage import wait_for

pytestmark = pytest.mark.postgres
DEADLINE_S = 60.0
ANSWER_S = 6.0
LONGER_S = ANSWER_S + 0.5
"""Seconds that a statement takes which outlasts every patience here."""
SLEEP = text(f"SELECT pg_sleep({LONGER_S})")
PID = text("SELECT pg_backend_pid()")


@pytest.fixture
def database_kind():
    return "postgresql"


@pytest.fixture(autouse=True)
def _not_left_alone(monkeypatch):
    monkeypatch.setattr(timeouts, "BREAKER_OPEN_S", 0.05)


@pytest.fixture
def url(databases):
    return databases.empty()


@pytest.fixture
def database(url):
    with closing(Database(url, ANSWER_S)) as made:
        yield made


@pytest.fixture
def writer(database):
    with closing(Writer(database)) as made:
        made.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY)")))
        yield made


@pytest.fixture
def other(url):
    """Another program's connection, which may take its time."""
    with closing(Database(url, NO_TIMEOUT)) as made, made.writer.connect() as connection:
        yield connection


@pytest.fixture
def stop():
    """Stops the process behind a connection; all go on in the end."""
    stopped = []

    def freeze(connection):
        stopped.append(connection.execute(PID).scalar())
        os.kill(stopped[-1], signal.SIGSTOP)

    def thaw():
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)

    freeze.thaw = thaw
    yield freeze
    thaw()


def insert(number):
    return lambda unit: unit.connection.execute(text("INSERT INTO t VALUES (:a)"), {"a": number})


def rows(database):
    with database.read() as connection:
        return list(connection.execute(text("SELECT a FROM t ORDER BY a")).scalars())


def again(work):
    """What it returns once the database is not left alone any more."""

    def asked():
        try:
            return (work(),)
        except DatabaseGone:
            return None

    return wait_for(asked, "an answer", DEADLINE_S)[0]


@contextmanager
def bounded(least_s):
    """It takes as long as that, and not for ever."""
    began = time.monotonic()
    yield
    assert least_s - 0.5 <= time.monotonic() - began < DEADLINE_S


def test_a_read_that_gets_no_answer_is_refused_and_the_next_has_another_connection(database, writer, stop):
    with database.read() as connection:
        stop(connection)
    with bounded(ANSWER_S), pytest.raises(DatabaseGone, match="does not answer"):
        rows(database)  # over the same connection, which the pool keeps
    assert again(lambda: rows(database)) == []


def test_a_unit_that_gets_no_answer_is_refused_is_not_run_again_and_leaves_nothing(database, writer, stop):
    tries = []

    def work(unit):
        tries.append(unit)
        insert(1)(unit)
        stop(unit.connection)
        insert(2)(unit)

    with bounded(ANSWER_S), pytest.raises(DatabaseGone) as gone:
        writer.run(work)
    assert not isinstance(gone.value, CommitIndeterminate)
    stop.thaw()
    again(lambda: writer.run(insert(3)))
    assert (len(tries), rows(database)) == (1, [3])


def test_a_commit_that_gets_no_answer_is_told_apart_since_it_may_be_done_when_the_server_goes_on(
    database, writer, stop
):
    tries = []

    def work(unit):
        tries.append(unit)
        insert(1)(unit)
        unit.at_end("z", stop)

    with bounded(ANSWER_S), pytest.raises(CommitIndeterminate):
        writer.run(work)
    stop.thaw()
    again(lambda: writer.run(insert(2)))
    assert len(tries) == 1
    assert rows(database) in ([2], [1, 2])  # the server looks first at the commit, or at how long it has waited for one


def test_what_has_queued_up_behind_a_silence_is_refused_with_it(database, writer, stop, monkeypatch):
    monkeypatch.setattr(timeouts, "BREAKER_OPEN_S", DEADLINE_S)
    rows(database)
    with ThreadPoolExecutor(1) as pool:
        entered = threading.Event()

        def work(unit):
            stop(unit.connection)
            entered.set()
            insert(1)(unit)

        first = pool.submit(writer.run, work)
        assert entered.wait(DEADLINE_S)
        with pytest.raises(DatabaseGone):
            writer.run(insert(2))
        assert isinstance(first.exception(DEADLINE_S), DatabaseGone)
    for asks in (lambda: rows(database), lambda: writer.run(insert(3))):
        with pytest.raises(DatabaseGone, match="others were waiting"):
            asks()


def test_a_place_where_nobody_answers_is_no_server(monkeypatch):
    monkeypatch.setattr(timeouts, "BREAKER_OPEN_S", DEADLINE_S)
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"postgresql://u:hunter2@127.0.0.1:{listener.getsockname()[1]}/x"
        with closing(Database(url, ANSWER_S)) as database:
            with bounded(2.0), pytest.raises(DatabaseGone, match="does not answer") as gone, database.read():
                pass
            with pytest.raises(DatabaseGone, match="others were waiting"), database.read():
                pass
    assert "hunter2" not in str(gone.value)
    assert gone.value.retry_after_s


def test_a_locked_table_is_told_to_readers_too(database, writer, other):
    other.execute(text("LOCK TABLE t"))
    with bounded(2.0), pytest.raises(DatabaseLocked):
        rows(database)
    other.rollback()
    assert rows(database) == []


def test_a_locked_table_costs_a_group_one_wait_and_not_one_for_each_unit(database, writer, other, monkeypatch):
    monkeypatch.setattr(writing, "SHORT_LOCK_TIMEOUT_MS", 20)
    entered, hold = threading.Event(), threading.Event()

    def first(_unit):
        entered.set()
        assert hold.wait(DEADLINE_S)

    other.execute(text("LOCK TABLE t"))
    with ThreadPoolExecutor(13) as pool:
        held = pool.submit(writer.run, first)
        assert entered.wait(DEADLINE_S)
        group = [pool.submit(writer.run, insert(number)) for number in range(12)]  # while the first is at work
        wait_for(lambda: writer._jobs.qsize() == len(group), "them to be handed in")
        began = time.monotonic()
        hold.set()
        held.result(DEADLINE_S)
        told = [each.exception(DEADLINE_S) for each in group]
        took_s = time.monotonic() - began
    assert {type(each) for each in told} == {DatabaseLocked}
    assert took_s < ServerTimeouts(ANSWER_S).lock_s * len(group) * 3 / 4
    other.rollback()
    writer.run(insert(1))
    assert rows(database) == [1]


def test_a_slow_statement_is_told_where_somebody_waits_for_it_and_not_where_it_may_take_its_time(url):
    """All at once, since each takes seconds."""

    def read(database):
        with database.read() as connection:
            connection.execute(SLEEP)

    def read_on(database):
        with database.read() as connection:
            with without_timeout(connection):
                connection.execute(SLEEP)
            limit = connection.execute(text("SELECT current_setting('statement_timeout')")).scalar()
            return limit, connection.connection.driver_connection.wait.answer_s

    def write_on(database):
        def work(unit):
            with without_timeout(unit.connection):
                unit.connection.execute(SLEEP)
            return unit.connection.connection.driver_connection.wait.answer_s

        with closing(Writer(database)) as writer:
            return writer.run(work)

    def migrate(database):
        with _migration_config(database) as config:
            config.attributes["connection"].execute(SLEEP)

    def long_answer(database):  # a row each half second, too large for any buffer: that is no silence
        rows = text("SELECT pg_sleep(0.5), repeat('x', 1000000) FROM generate_series(1, 14)")
        with database.writer.connect() as connection:
            return len(connection.execute(rows).all())

    def house_keeping(_database):
        with closing(Database(url, NO_TIMEOUT)) as unbound:
            read(unbound)

    def run(work):
        with closing(Database(url, ANSWER_S)) as database:
            return work(database)

    works = (read, read_on, write_on, migrate, long_answer, house_keeping)
    with ThreadPoolExecutor(len(works)) as pool:
        told, *rest = [pool.submit(run, work) for work in works]
        assert isinstance(told.exception(DEADLINE_S), StatementTimeout)
        assert [each.result(DEADLINE_S) for each in rest] == [("5s", ANSWER_S), ANSWER_S, None, 14, None]
