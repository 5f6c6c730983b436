"""Measures the event log: appends against plain INSERTs of the same rows, pages of a long session, many readers.

All in one run, on SQLite and, if its programs are installed, on the bench's own PostgreSQL with durable commits:

- append: units of work of `BATCH` events each, from 1 and from 8 threads, each acknowledged once it is on the disk. The
  peers have the finished rows and the driver alone (`executemany`, a commit) with the same durability, three ways:
  "plain insert": a connection for each thread, a commit for each unit, which is what a thread that needs its unit
  acknowledged can do without a writer to share; "in reached groups": one connection whose commits hold as many rows as
  ours held on average, so the same rows in as many commits; "in groups of 8": one connection that commits eight units
  at once, which is the most that eight threads that wait for each unit could reach;
- read_page: one page of 100 events at a random place of a session of 1,000 and of 1,000,000 events;
- sse_500: 500 streams of one session in one process, over the application's own code without a network: time from the
  append's call until a reader has the bytes, and the memory of a reader.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event, text

from codesdk.api.cursor import StartPosition
from codesdk.api.event_stream import EventStream, OpenStreams
from codesdk.domain.clock import SystemClock
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId, TenantId
from codesdk.errors import Fault
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.eventlog.tail import Tail
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from codesdk.storage.writer import Unit, Writer
from database import postgresql

BATCH = 10
"""Events of one unit: as many as a command with much output writes at once."""
UNITS = 600
ROUNDS = 5
"""Ours and the peer in turn, so that other load on the machine affects both."""
LONG = 1_000_000
PAGES = 300
READERS = 500
BEATS = 100
PLAIN = ("append_per_s", "read_page_ms_1k", "read_page_ms_1m", "sse_500_p95_ms", "sse_reader_kb")
Say = Callable[[str], None]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 6


class Bench:
    """One database with its log. Opens sessions on demand."""

    def __init__(self, database: Database, lock: Path | None) -> None:
        self.database = database
        self.writer = Writer(database, lock)
        self.hints = LocalHints()
        self.log = EventLog(database, SystemClock(), self.hints)
        upgrade(database)
        self._sessions = 0
        self.commits = 0
        event.listen(database.writer, "commit", self._count)
        with database.writer.begin() as connection:
            for statement in (
                "INSERT INTO tenants (id, name, created_at) VALUES('ten', 'x', 0)",
                "INSERT INTO principals (id, tenant_id, name, roles, created_at) VALUES('prn', 'ten', 'b', '[]', 0)",
                "INSERT INTO hosts (id, name, generation, heartbeat, images, registered_at) VALUES ('hst', 'local', 1, 0, '{}', 0)",
                "CREATE TABLE plain (session_id VARCHAR(40) NOT NULL, seq BIGINT NOT NULL, time VARCHAR(24) NOT NULL,"
                " type VARCHAR(48) NOT NULL, body TEXT NOT NULL, PRIMARY KEY (session_id, seq))"
                + (" WITHOUT ROWID" if database.is_sqlite else ""),
            ):
                connection.execute(text(statement))

    def _count(self, _connection: Connection) -> None:
        self.commits += 1

    def close(self) -> None:
        """End threads and connections."""
        self.writer.close()
        self.database.close()

    def session(self) -> SessionId:
        """A new one, open, with an empty log."""
        self._sessions += 1
        made = SessionId(f"ses_{self._sessions:026d}")
        with self.database.writer.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO sessions (id, tenant_id, principal_id, host_id, state, runtime, permission_mode,"
                    " profile, image, labels, log_epoch, created_at)"
                    " VALUES(:id, 'ten', 'prn', 'hst', 'open', 'x', 'auto', '{}', 'i', '{}', 'e', 0)"
                ),
                {"id": made},
            )
        return made

    def append(self, drafts: list[EventDraft]) -> None:
        """One acknowledged unit, written out before it as the output of a command is."""
        ready = [self.log.encode(each) for each in drafts]

        def work(unit: Unit) -> None:
            for each in ready:
                self.log.append(unit, each)

        self.writer.run(work)


def draft(session: SessionId, number: int) -> EventDraft:
    return EventDraft(
        type=EventType.OUTPUT_DELTA,
        trace=Trace(session_id=session),
        runtime=RuntimeInfo(name="bench"),
        payload={"tool_call_id": "tcl_bench", "stream": "stdout", "offset": number, "text": TEXT},
    )


def append_rate(bench: Bench, threads: int, units: int) -> float:
    """Events per second, from `threads` writers on a session each."""
    sessions = [bench.session() for _ in range(threads)]
    each = units // threads
    start = threading.Barrier(threads + 1)

    def work(session: SessionId) -> None:
        # Events are made before the clock starts, like the peer's rows: only writing them is compared.
        units = [[draft(session, number) for number in range(BATCH)] for _ in range(each)]
        start.wait()
        for drafts in units:
            bench.append(drafts)

    running = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in running:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in running:
        thread.join()
    return each * threads * BATCH / (time.perf_counter() - began)


def plain_rate(bench: Bench, threads: int, rows_per_commit: int, units: int) -> float:
    """Rows per second by the driver alone: the same rows, `executemany`, a connection of the same settings a thread."""
    with bench.database.read() as connection:
        rows = [tuple(row) for row in connection.execute(text(f"SELECT * FROM events LIMIT {units * BATCH}"))]
    with bench.database.writer.begin() as connection:
        connection.execute(text("DELETE FROM plain"))
    share = len(rows) // threads
    start = threading.Barrier(threads + 1)

    def work(own: list[tuple[Any, ...]]) -> None:
        with bench.database.writer.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            start.wait()
            insert_plainly(raw, own, rows_per_commit, sqlite=bench.database.is_sqlite)

    parts = [rows[number * share : (number + 1) * share] for number in range(threads)]
    running = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in running:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in running:
        thread.join()
    return share * threads / (time.perf_counter() - began)


def insert_plainly(raw: Any, rows: list[tuple[Any, ...]], rows_per_commit: int, *, sqlite: bool) -> None:
    statement = f"INSERT INTO plain VALUES({', '.join(['?' if sqlite else '%s'] * 5)})"
    with closing(raw.cursor()) as cursor:
        for place in range(0, len(rows), rows_per_commit):
            if sqlite:
                cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(statement, rows[place : place + rows_per_commit])
            raw.commit()


def appends(bench: Bench) -> dict[str, float]:
    append_rate(bench, 8, UNITS // 4)
    plain_rate(bench, 1, BATCH, UNITS // 4)
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        took = {
            "append_1_writer_per_s": append_rate(bench, 1, UNITS),
            "plain_insert_1_writer_per_s": plain_rate(bench, 1, BATCH, UNITS),
        }
        before = bench.commits
        took["append_per_s"] = append_rate(bench, 8, UNITS)
        reached = UNITS * BATCH / (bench.commits - before)
        took |= {
            "append_rows_per_commit": reached,
            "plain_insert_per_s": plain_rate(bench, 8, BATCH, UNITS),
            "plain_insert_in_reached_groups_per_s": plain_rate(bench, 1, round(reached), UNITS),
            "plain_insert_in_groups_of_8_per_s": plain_rate(bench, 1, BATCH * 8, UNITS),
        }
        for peer in ("plain_insert", "plain_insert_in_reached_groups", "plain_insert_in_groups_of_8"):
            took[f"append / {peer.replace('_', ' ')}, 8 writers"] = took["append_per_s"] / took[f"{peer}_per_s"]
        took["append / plain insert, 1 writer"] = took["append_1_writer_per_s"] / took["plain_insert_1_writer_per_s"]
        for name, value in took.items():
            found.setdefault(name, []).append(value)
    # Each ratio is of one round, so that a busy disk slows both sides.
    return {
        name: round(statistics.median(values), 3 if "/" in name else 0) or 0 for name, values in sorted(found.items())
    }


def pages(bench: Bench, long: int) -> dict[str, float]:
    short_session, long_session = bench.session(), bench.session()
    fill(bench, short_session, 1000)
    fill(bench, long_session, long)
    chance = random.Random(4)
    times: dict[str, list[float]] = {"1k": [], "1m": []}
    for number in range(-20, PAGES):
        for name, session, count in (("1k", short_session, 1000), ("1m", long_session, long)):
            after = chance.randrange(count - 100)
            began = time.perf_counter()
            events = bench.log.read(session, after, 100)
            took = (time.perf_counter() - began) * 1000
            assert [event.seq for event in events] == list(range(after + 1, after + 101))
            if number >= 0:
                times[name].append(took)
    short, far = statistics.median(times["1k"]), statistics.median(times["1m"])
    return {
        "read_page_ms_1k": round(short, 3),
        "read_page_ms_1m": round(far, 3),
        "read page 1m / 1k": round(far / short, 3),
    }


def fill(bench: Bench, session: SessionId, count: int) -> None:
    """Insert copies of one event: a million appends through the log would take minutes and measure nothing more."""
    bench.append([draft(session, 1)])
    numbers = (
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < :count) SELECT i FROM n"
        if bench.database.is_sqlite
        else "SELECT generate_series(2, :count) AS i"
    )
    with bench.database.writer.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO events (session_id, seq, time, type, body) SELECT e.session_id, n.i, e.time, e.type, e.body"
                f" FROM ({numbers}) AS n CROSS JOIN events AS e WHERE e.session_id = :session AND e.seq = 1"
            ),
            {"count": count, "session": session},
        )
        connection.execute(
            text("UPDATE sessions SET last_seq = :count WHERE id = :session"), {"count": count, "session": session}
        )


class Reader:
    """The receiving end of one stream: records the arrival time of each event's bytes."""

    def __init__(self, seen: list[float]) -> None:
        self._seen = seen
        self.count = 0

    async def send(self, message: dict[str, Any]) -> None:
        """Take what the stream writes."""
        now = time.perf_counter()
        events = message.get("body", b"").count(b"\ndata: ")
        self.count += events
        self._seen.extend([now] * events)

    async def receive(self) -> dict[str, Any]:
        """Stay connected."""
        await asyncio.Event().wait()
        raise AssertionError


def streams(bench: Bench) -> dict[str, float]:
    return asyncio.run(_streams(bench))


async def _streams(bench: Bench) -> dict[str, float]:
    session = bench.session()
    tail = Tail(bench.log, bench.hints, SystemClock(), 0.5)
    readers = OpenStreams(0)
    seen: list[float] = []
    ends = [Reader(seen) for _ in range(READERS)]
    gc.collect()
    before = resident_kb()
    tasks = [
        asyncio.create_task(
            EventStream(
                log=bench.log,
                tail=tail,
                readers=readers,
                tenant=TenantId("ten"),
                session=session,
                begin=StartPosition("e", 0, None),
                head=0,
            )({}, end.receive, end.send)  # type: ignore[arg-type]
        )
        for end in ends
    ]
    await asyncio.sleep(1.0)
    await asyncio.to_thread(bench.append, [draft(session, 1)])
    await _until(lambda: all(end.count == 1 for end in ends))
    gc.collect()
    per_reader = (resident_kb() - before) / READERS
    times: list[float] = []
    for number in range(2, BEATS + 2):
        seen.clear()
        began = time.perf_counter()
        await asyncio.to_thread(bench.append, [draft(session, 1)])
        await _until(lambda number=number: all(end.count == number for end in ends))
        times += [(at - began) * 1000 for at in seen]
    readers.close()
    await asyncio.wait(tasks, timeout=10)
    tail.close()
    return {
        "sse_500_p50_ms": round(statistics.median(times), 2),
        "sse_500_p95_ms": round(statistics.quantiles(times, n=20)[-1], 2),
        "sse_reader_kb": round(per_reader, 1),
    }


async def _until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110 (500 readers would each have to say so)
            await asyncio.sleep(0.005)


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@contextmanager
def opened_bench(url: str, place: Path) -> Iterator[Bench]:
    database = Database(url)
    with closing(Bench(database, place / "write.lock" if database.is_sqlite else None)) as bench:
        yield bench


def measure_on(url: str, place: Path, long: int, say: Say) -> dict[str, float]:
    with opened_bench(url, place) as bench:
        kind = "SQLite" if bench.database.is_sqlite else "PostgreSQL"
        say(f"{kind}: appends")
        found = appends(bench)
        say(f"{kind}: {READERS} streams")
        found |= streams(bench)
        say(f"{kind}: pages of {long:,} events")
        return found | pages(bench, long)


def measure(say: Say, long: int = LONG) -> dict[str, Any]:
    """The report's keys; PostgreSQL's under `postgresql`, with the reason where it cannot be had."""
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="codesdk-bench-")))
        report: dict[str, Any] = measure_on(f"sqlite:///{place / 'codesdk.db'}", place, long, say)
        server = opened.enter_context(postgresql(say))
        report["postgresql"] = str(server) if isinstance(server, Fault) else measure_on(server.url, place, long, say)
    return report


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="PATH")
    options.add_argument("--long", type=int, default=LONG, help="events of the long session")
    given = options.parse_args()
    report = measure(print, given.long)
    written = json.dumps(report, indent=2)
    print(written)
    if given.json:
        given.json.write_text(written + "\n")


if __name__ == "__main__":
    main()
