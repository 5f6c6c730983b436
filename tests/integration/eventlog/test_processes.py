"""The log under real processes that write together and are killed."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from sqlalchemy import text

from codesdk.domain.clock import SystemClock
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.eventlog.tail import Tail
from codesdk.storage.database import Database
from databases import ONLY_SQLITE
from stage import wait_for

APPENDER = Path(__file__).with_name("appender.py")


def command(stage, name):
    lock = str(stage.root / "write.lock") if stage.database.is_sqlite else "-"
    return [sys.executable, str(APPENDER), stage.url, lock, stage.session.id, name]


class Appender:
    """One process that appends until it is killed; `acknowledged` is what it said."""

    def __init__(self, stage, name, threads=1):
        self.acknowledged = []
        self._process = subprocess.Popen([*command(stage, name), str(threads)], stdout=subprocess.PIPE, text=True)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        for line in iter(self._process.stdout.readline, ""):
            if line.endswith("\n"):
                self.acknowledged.append(line.rstrip("\n"))

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._reading.join(10)
        self._process.stdout.close()


def everything(stage):
    events = []
    while page := stage.events(after=events[-1].seq if events else 0):
        events += page
    return events[1:]


def check(stage, acknowledged):
    events = everything(stage)
    assert [event.seq for event in events] == list(range(2, len(events) + 2)), "dense"
    found = Counter(event.payload["n"] for event in events)
    assert not [name for name, times in found.items() if times > 1], "none twice"
    assert not set(acknowledged) - set(found), "every acknowledged one is there"
    return events


def test_what_was_acknowledged_survives_kill_9_again_and_again(stage):
    random.seed(8)
    acknowledged = []
    for life in range(6):
        appender = Appender(stage, f"life{life}")
        wait_for(lambda appender=appender: appender.acknowledged, "the first event", 30)
        threading.Event().wait(random.random() * 0.1)
        appender.kill()
        acknowledged += appender.acknowledged
        check(stage, acknowledged)
    events = check(stage, acknowledged)
    assert len(events) - len(acknowledged) <= 6, "at most the one under way is there without its answer"


def test_two_processes_and_this_one_write_a_dense_log_together(stage):
    appenders = [Appender(stage, name) for name in ("one", "two")]
    seen = []
    tail = Tail(stage.log, LocalHints(), SystemClock(), 0.02)
    tail.subscribe(stage.session.id, 1, lambda events: seen.extend(event.seq for event in events))
    wait_for(lambda: len({str(event.payload["n"]).partition(".")[0] for event in everything(stage)}) == 2, "both", 30)
    wait_for(lambda: stage.log.head(stage.session.id) > 150, "150 events", 30)
    for appender in appenders:
        appender.kill()
    events = check(stage, [name for appender in appenders for name in appender.acknowledged])
    for name in ("one", "two"):
        own = [event.payload["n"] for event in events if event.payload["n"].startswith(name)]
        assert own == [f"{name}.0-{number}" for number in range(len(own))], "each writer's order holds"
    wait_for(lambda: len(seen) == len(events), "the tail to catch up")
    assert seen == [event.seq for event in events]
    tail.close()


class Restless:
    """A reader that goes and comes back at random, with the number that it saw last, each time to another process's tail."""

    def __init__(self, stage, seed):
        self.seqs = []
        self._stage = stage
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        database = Database(self._stage.url)
        log = EventLog(database, SystemClock(), LocalHints())
        while not self._stop.is_set():
            tail = Tail(log, LocalHints(), SystemClock(), 0.02)
            tail.subscribe(self._stage.session.id, self.seqs[-1] if self.seqs else 0, self._take)
            self._stop.wait(self._random.random() * 0.3)
            tail.close()  # waits for a delivery under way, so that nothing comes after the next begins
        database.close()

    def _take(self, events):
        self.seqs += [event.seq for event in events]

    def stop(self):
        self._stop.set()
        self._reading.join(10)


def test_sixteen_writers_in_four_processes_killed_in_between_and_every_reader_sees_each_event_once(stage):
    chance = random.Random(16)
    readers = [Restless(stage, seed) for seed in (1, 2)]
    lives = itertools.count()
    running = [Appender(stage, f"life{next(lives)}", threads=4) for _ in range(4)]
    ended = []
    for _ in range(6):
        wait_for(lambda: all(appender.acknowledged for appender in running), "events of all four", 60)
        threading.Event().wait(chance.random() * 0.2)
        victim = running.pop(chance.randrange(4))
        victim.kill()
        ended.append(victim)
        running.append(Appender(stage, f"life{next(lives)}", threads=4))
    wait_for(lambda: all(appender.acknowledged for appender in running), "events of all four", 60)
    for appender in running:
        appender.kill()
    ended += running
    acknowledged = [name for appender in ended for name in appender.acknowledged]
    events = check(stage, acknowledged)
    assert len(events) - len(acknowledged) <= 4 * len(ended), "at most what was under way is there without its answer"
    wait_for(lambda: all(len(reader.seqs) >= len(events) + 1 for reader in readers), "the readers to catch up", 30)
    for reader in readers:
        reader.stop()
        assert reader.seqs == list(range(1, len(events) + 2))
    for writer in {event.payload["n"].partition("-")[0] for event in events}:
        own = [event.payload["n"] for event in events if event.payload["n"].startswith(f"{writer}-")]
        assert own == [f"{writer}-{number}" for number in range(len(own))], "each writer's order holds"


def test_a_crash_at_any_point_of_an_append_loses_and_doubles_nothing_that_was_acknowledged(stage):
    points = 12 if stage.database.is_sqlite else 10  # of two appends: begin, statements (two, or one), commit
    done = subprocess.run(
        [*command(stage, "crash"), "crash", str(points)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    ends = dict(line.split(" ", 1) for line in done.stderr.splitlines())
    assert [ends[str(point)] for point in range(1, points + 1)] == ["killed"] * points, done.stderr
    acknowledged = done.stdout.splitlines()
    assert len(acknowledged) >= points
    check(stage, acknowledged)
    stage.writer.run(lambda unit: unit.connection.execute(text("SELECT 1")))


@ONLY_SQLITE
def test_a_process_killed_while_it_holds_the_write_lock_blocks_nobody(stage):
    holding = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,fcntl.LOCK_EX); print('held',flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", holding, str(stage.root / "write.lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    writing = threading.Thread(target=lambda: stage.writer.run(lambda _: None))
    writing.start()
    writing.join(0.1)
    assert writing.is_alive()
    process.kill()
    process.wait(10)
    process.stdout.close()
    writing.join(10)
    assert not writing.is_alive()
