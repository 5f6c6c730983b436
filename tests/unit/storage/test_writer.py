from __future__ import annotations

import shutil
import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from sqlalchemy import event, text

from codesdk.errors import Fault
from codesdk.storage import engines
from codesdk.storage.database import Database, StorageUnavailable
from codesdk.storage.faults import DatabaseLocked, DatabaseReadOnly
from codesdk.storage.writer import MAX_GROUP, Unit, Writer, WriterClosed
from databases import ONLY_SQLITE
from stage import DEADLINE_S


@pytest.fixture
def database(databases):
    made = Database(databases.empty())
    yield made
    made.close()


@pytest.fixture
def writer(database, tmp_path):
    made = Writer(database, tmp_path / "write.lock" if database.is_sqlite else None)
    made.run(lambda unit: unit.connection.execute(text("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")))
    yield made
    made.close()


def insert(number, content="x"):
    return lambda unit: unit.connection.execute(text("INSERT INTO t VALUES(:a, :b)"), {"a": number, "b": content})


def rows(database):
    with database.read() as connection:
        return [row.a for row in connection.execute(text("SELECT a FROM t ORDER BY a"))]


class Held:
    """Holds the writer inside a unit, so that what is handed in meanwhile becomes one group."""

    def __init__(self, writer):
        self.writer = writer
        self.pool = ThreadPoolExecutor(MAX_GROUP + 2)
        self.entered, self.release = threading.Event(), threading.Event()
        self.first = self.pool.submit(writer.run, self._wait)
        assert self.entered.wait(DEADLINE_S)

    def _wait(self, _unit):
        self.entered.set()
        assert self.release.wait(DEADLINE_S)

    def hand_in(self, *works) -> list[Future[object]]:
        futures = []
        for work in works:
            before = self.writer._jobs.qsize()
            futures.append(self.pool.submit(self.writer.run, work))
            while self.writer._jobs.qsize() == before:
                threading.Event().wait(0.001)
        return futures

    def let_go(self):
        self.release.set()
        self.pool.shutdown(wait=True)


def test_a_unit_that_raises_leaves_nothing_and_fails_alone(writer, database):
    def breaks(unit):
        insert(2)(unit)
        raise ValueError("mine")

    held = Held(writer)
    one, two, three = held.hand_in(insert(1), breaks, insert(3))
    held.let_go()
    assert one.exception() is None
    assert isinstance(two.exception(), ValueError)
    assert three.exception() is None
    assert rows(database) == [1, 3]


def test_units_get_savepoints_only_once_one_of_their_group_has_failed(writer, database):
    savepoints = []
    event.listen(database.writer, "savepoint", lambda _connection, name: savepoints.append(name))

    def breaks(unit):
        insert(9)(unit)
        raise ValueError("mine")

    held = Held(writer)
    lawful = held.hand_in(insert(1), insert(2))
    held.let_go()
    assert [future.exception() for future in lawful] == [None, None]
    assert savepoints == []
    held = Held(writer)
    held.hand_in(insert(3), breaks)
    held.let_go()
    assert len(savepoints) == 2
    assert rows(database) == [1, 2, 3]


def test_a_statement_that_fails_fails_its_unit_alone(writer, database):
    held = Held(writer)
    one, two, three = held.hand_in(insert(1), insert(1), insert(3))
    held.let_go()
    assert one.exception() is None
    assert isinstance(two.exception(), StorageUnavailable)
    assert three.exception() is None
    assert rows(database) == [1, 3]


def test_the_effects_and_last_steps_of_a_failed_unit_are_not_done(writer):
    done = []

    def breaks(unit):
        unit.at_end("k", lambda _: done.append("last"))
        unit.after_commit(lambda: done.append("effect"))
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        writer.run(breaks)
    writer.close()
    assert done == []


def test_units_that_wait_are_committed_in_one_group(writer):
    seen = []

    def look(unit):
        seen.append(unit.connection)

    held = Held(writer)
    futures = held.hand_in(*[look] * 20)
    held.let_go()
    assert all(future.exception() is None for future in futures)
    assert len({id(connection) for connection in seen}) == 1


def test_a_group_has_a_limit(writer):
    seen = []
    held = Held(writer)
    held.hand_in(*[lambda unit: seen.append(unit.connection)] * (MAX_GROUP + 1))
    held.let_go()
    assert len(seen) == MAX_GROUP + 1
    assert sum(connection is seen[0] for connection in seen) == MAX_GROUP


def test_last_steps_run_after_every_unit_in_the_order_of_their_keys(writer):
    order = []

    def unit_of(name, *keys):
        def work(unit):
            order.append(name)
            for key in keys:
                unit.at_end(key, lambda _, key=key: order.append(f"{name}-{key}"))

        return work

    held = Held(writer)
    held.hand_in(unit_of("x", "b", "a"), unit_of("y", "c", "a"))
    held.let_go()
    assert order == ["x", "y", "x-a", "y-a", "x-b", "y-c"]


def test_last_steps_of_one_key_keep_the_order_in_which_they_were_said(writer):
    order = []

    def work(unit):
        for number in range(50):
            unit.at_end("k", lambda _, number=number: order.append(number))

    writer.run(work)
    assert order == list(range(50))


def test_an_effect_sees_what_was_committed(writer, database):
    seen: SimpleQueue[list[int]] = SimpleQueue()

    def work(unit):
        unit.after_commit(lambda: seen.put(rows(database)))
        insert(1)(unit)

    writer.run(work)
    assert seen.get(timeout=DEADLINE_S) == [1]


def test_urgent_effects_of_a_group_come_before_all_others(writer):
    seen: SimpleQueue[str] = SimpleQueue()

    def work(unit):
        unit.after_commit(lambda: seen.put("hint"))
        unit.after_commit(lambda: seen.put("wake-up"), urgent=True)

    held = Held(writer)
    held.hand_in(work, work)
    held.let_go()
    assert [seen.get(timeout=DEADLINE_S) for _ in range(4)] == ["wake-up", "wake-up", "hint", "hint"]


def test_an_effect_that_raises_stops_neither_commits_nor_effects(writer):
    seen: SimpleQueue[str] = SimpleQueue()

    def breaks():
        raise OSError("Redis is away")

    def work(unit):
        unit.after_commit(breaks)
        unit.after_commit(lambda: seen.put("next"))

    writer.run(work)
    assert seen.get(timeout=DEADLINE_S) == "next"
    writer.run(insert(1))


def test_an_effect_that_hangs_stops_no_commit(writer, database):
    stuck = threading.Event()
    writer.run(lambda unit: unit.after_commit(lambda: stuck.wait(DEADLINE_S) and None))
    for number in range(5):
        writer.run(insert(number))
    assert rows(database) == [0, 1, 2, 3, 4]
    stuck.set()


def test_closing_finishes_what_was_handed_in_and_its_effects(writer, database):
    done = []
    held = Held(writer)

    def work(unit):
        insert(1)(unit)
        unit.after_commit(lambda: done.append("effect"))

    (future,) = held.hand_in(work)
    closing = threading.Thread(target=writer.close)
    closing.start()
    held.let_go()
    closing.join(DEADLINE_S)
    assert future.exception() is None
    assert rows(database) == [1]
    assert done == ["effect"]


def test_a_closed_writer_says_so(writer):
    writer.close()
    writer.close()
    with pytest.raises(WriterClosed) as closed:
        writer.run(insert(1))
    assert closed.value.retryable


def test_nobody_waits_for_ever_when_the_writer_closes_under_load(database, tmp_path):
    for _ in range(20):
        writer = Writer(database, tmp_path / "write.lock" if database.is_sqlite else None)
        start = threading.Barrier(9)

        def hammer(writer=writer, start=start):
            start.wait(DEADLINE_S)
            try:
                for _ in range(20):
                    writer.run(lambda _unit: None)
            except WriterClosed:
                pass

        threads = [threading.Thread(target=hammer, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        start.wait(DEADLINE_S)
        writer.close()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)


def limit_to(pages):
    def work(unit: Unit):
        count = unit.connection.execute(text("PRAGMA page_count")).scalar()
        unit.connection.execute(text(f"PRAGMA max_page_count={count + pages}"))

    return work


@ONLY_SQLITE
def test_a_full_disk_says_storage_unavailable_and_the_writer_goes_on(writer, database):
    writer.run(limit_to(2))
    with pytest.raises(StorageUnavailable, match="full"):
        writer.run(insert(1, "x" * 100_000))
    writer.run(insert(2))
    assert rows(database) == [2]


@ONLY_SQLITE
def test_nothing_is_acknowledged_that_a_full_disk_undid(writer, database):
    # SQLite rolls the whole transaction back where a statement finds the disk full, not only the savepoint.
    writer.run(limit_to(2))
    held = Held(writer)
    futures = held.hand_in(insert(1), insert(2, "x" * 100_000), insert(3))
    held.let_go()
    acknowledged = [number for number, future in enumerate(futures, 1) if future.exception() is None]
    assert rows(database) == acknowledged
    assert all(isinstance(f.exception(), StorageUnavailable) for f in futures if f.exception())
    writer.run(insert(4))


@ONLY_SQLITE
def test_a_last_step_that_finds_the_disk_full_fails_its_group_whole(writer, database):
    writer.run(limit_to(2))
    held = Held(writer)

    def late(unit):
        unit.at_end("z", lambda connection: insert(2, "x" * 100_000)(Unit(connection)))

    futures = held.hand_in(insert(1), late)
    held.let_go()
    assert all(isinstance(future.exception(), StorageUnavailable) for future in futures)
    assert rows(database) == []


@ONLY_SQLITE
def test_a_read_only_database_says_storage_unavailable(database, writer):
    writer.close()
    reopened = Database(f"sqlite:///file:{database.url.database}?mode=ro&uri=true")
    second = Writer(reopened)
    try:
        with pytest.raises(DatabaseReadOnly):
            second.run(insert(1))
    finally:
        second.close()
        reopened.close()


def test_a_file_that_is_no_database_says_storage_unavailable(tmp_path):
    (tmp_path / "bad.db").write_bytes(b"this is no database " * 500)
    database = Database(f"sqlite:///{tmp_path / 'bad.db'}")
    with pytest.raises(StorageUnavailable), database.read():
        pass
    database.close()


def test_a_directory_that_is_gone_says_storage_unavailable(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'none' / 'x.db'}")
    writer = Writer(database, tmp_path / "none" / "write.lock")
    with pytest.raises(StorageUnavailable):
        writer.run(lambda _: None)
    with pytest.raises(StorageUnavailable), database.read():
        pass
    writer.close()
    database.close()


def test_a_reader_in_the_middle_of_its_rows_does_not_hold_up_the_writer(writer, database):
    writer.run(insert(1))
    with database.read() as connection:
        reading = connection.execute(text("SELECT a FROM t"))
        writer.run(insert(2))
        assert reading.fetchall() == [(1,)]
    assert rows(database) == [1, 2]


def test_storage_unavailable_names_no_sql_and_no_values(writer):
    writer.run(insert(1, "secret-value"))
    with pytest.raises(Fault) as refused:
        writer.run(insert(1, "secret-value"))
    assert "secret-value" not in str(refused.value)
    assert "INSERT" not in str(refused.value)


@ONLY_SQLITE
def test_a_data_directory_that_was_removed_takes_no_commit_even_when_it_is_made_again(database, tmp_path):
    # The open database would take it, into a file that has no name any more.
    place = tmp_path / "data"
    place.mkdir()
    writer = Writer(database, place / "write.lock")
    writer.run(lambda _unit: None)
    shutil.rmtree(place)
    with pytest.raises(StorageUnavailable):
        writer.run(lambda _unit: None)
    place.mkdir()
    (place / "write.lock").touch()
    with pytest.raises(StorageUnavailable):
        writer.run(lambda _unit: None)
    writer.close()


@ONLY_SQLITE
def test_a_database_that_another_program_holds_for_too_long_says_so_and_is_used_when_it_is_free(
    database, writer, monkeypatch
):
    monkeypatch.setattr(engines, "SQLITE_BUSY_TIMEOUT_S", 0.05)
    impatient = Database(database.url.render_as_string())
    second = Writer(impatient)
    holder = sqlite3.connect(database.url.database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseLocked) as locked:
        second.run(insert(1))
    assert locked.value.retryable
    holder.execute("ROLLBACK")
    holder.close()
    second.run(insert(2))
    assert rows(database) == [2]
    second.close()
    impatient.close()
