"""A worker touches its liveness file, and exits if one of its loops hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from codesdk.domain.clock import ManualClock
from codesdk.errors import ExitCode
from codesdk.worker.lifecycle.watchdog import TICK_S, Watchdog, WatchedLoop

OLD = 1_000_000_000


class Body:
    """A heart over one part, and what it did."""

    def __init__(self, sign):
        self.turns, self.judged, self.ended = 0, True, []
        self.clock, self.sign = ManualClock(), sign
        part = WatchedLoop("poller", lambda: self.turns, 60.0, lambda: self.judged)
        self.heart = Watchdog(self.clock, (part,), sign, self.ended.append)

    def pass_time(self, seconds, step=TICK_S):
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            self.heart.look()

    def touched(self):
        fresh = self.sign.stat().st_mtime > OLD
        os.utime(self.sign, (OLD, OLD))
        return fresh


@pytest.fixture
def body(tmp_path):
    sign = tmp_path / "worker.json"
    sign.touch()
    os.utime(sign, (OLD, OLD))
    return Body(sign)


def test_while_all_come_round_it_touches_its_sign(body):
    for _ in range(100):
        body.turns += 1
        body.pass_time(10)
        assert body.touched()
    assert body.ended == []


def test_a_part_that_does_not_come_round_ends_the_process_and_the_sign_is_touched_no_more(body):
    body.pass_time(59)
    assert body.ended == []
    assert body.touched()
    body.pass_time(1)
    assert body.ended == ["poller"]
    assert not body.touched()


def test_what_something_else_holds_up_does_not_hang(body):
    body.judged = False
    body.pass_time(1000)
    assert body.ended == []
    body.judged = True  # the database answers again: the part has its whole time
    body.pass_time(59)
    assert body.ended == []


def test_a_process_that_was_stopped_has_seen_none_of_its_parts_hang(body):
    body.pass_time(20_000, step=1000.0)
    assert body.ended == []


def test_without_a_sign_to_touch_it_goes_on(body):
    body.sign.unlink()
    body.pass_time(5)
    assert not body.sign.exists()


def test_its_end_says_where_every_thread_stands_and_takes_the_process_along():
    lines = (
        "import threading",
        "from codesdk.worker.lifecycle.watchdog import abort_process",
        "threading.Thread(target=threading.Event().wait, name='stuck').start()",
        "abort_process('poller')",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == ExitCode.UNAVAILABLE
    assert done.stderr.count("most recent call first") == 2
    assert done.stderr.splitlines()[-1].startswith("error: WORKER_HANGS: the poller")
