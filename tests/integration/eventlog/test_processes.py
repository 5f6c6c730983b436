"""The log under real processes that write together and are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from codesdk.domain.clock import SystemClock
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.tail import Tail
from stage import wait_for

APPENDER = Path(__file__).with_name("appender.py")


class Appender:
    """One process that appends until it is killed; `acknowledged` is what it said."""

    def __init__(self, stage, name):
        self.acknowledged = []
        self._process = subprocess.Popen(
            [sys.executable, str(APPENDER), str(stage.root), stage.session.id, name], stdout=subprocess.PIPE, text=True
        )
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
    wait_for(lambda: len({str(event.payload["n"]).partition("-")[0] for event in everything(stage)}) == 2, "both", 30)
    wait_for(lambda: stage.log.head(stage.session.id) > 150, "150 events", 30)
    for appender in appenders:
        appender.kill()
    events = check(stage, [name for appender in appenders for name in appender.acknowledged])
    for name in ("one", "two"):
        own = [event.payload["n"] for event in events if event.payload["n"].startswith(name)]
        assert own == [f"{name}-{number}" for number in range(len(own))], "each writer's order holds"
    wait_for(lambda: len(seen) == len(events), "the tail to catch up")
    assert seen == [event.seq for event in events]
    tail.close()


@pytest.mark.parametrize("blocker", ["write lock"])
def test_a_process_killed_while_it_holds_the_write_lock_blocks_nobody(stage, blocker):
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
