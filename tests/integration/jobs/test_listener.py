"""The listener's life over a real Redis."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import HostId, IdKind, RandomIds
from codesdk.jobs import RqWakeups
from codesdk.worker.calls.listener import Listener
from stage import DEADLINE_S, wait_for

pytestmark = pytest.mark.redis
IDS = RandomIds(ManualClock())


@pytest.fixture
def wakeups(redis_url):
    made = RqWakeups(redis_url, IDS)
    yield made
    made.close()


def test_a_closed_listener_ends_and_takes_no_wake_up_from_the_next(redis_url, wakeups):
    host = HostId(IDS.new(IdKind.HOST))
    first, second = SimpleQueue(), SimpleQueue()
    old = Listener(redis_url, host, first.put)
    wakeups.wake(host, IDS.new(IdKind.CALL))
    first.get(timeout=DEADLINE_S)
    old.close()
    wait_for(lambda: not old._thread.is_alive(), "the thread to end")
    new = Listener(redis_url, host, second.put)
    calls = [IDS.new(IdKind.CALL) for _ in range(5)]
    for call in calls:
        wakeups.wake(host, call)
    assert [second.get(timeout=DEADLINE_S) for _ in calls] == calls
    assert first.empty()
    new.close()


def test_what_was_told_before_anybody_listened_is_heard(redis_url, wakeups):
    host, heard, call = HostId(IDS.new(IdKind.HOST)), SimpleQueue(), IDS.new(IdKind.CALL)
    wakeups.wake(host, call)
    listener = Listener(redis_url, host, heard.put)
    assert heard.get(timeout=DEADLINE_S) == call
    listener.close()


def test_a_receiver_that_fails_does_not_end_the_listener(redis_url, wakeups):
    host, heard = HostId(IDS.new(IdKind.HOST)), SimpleQueue()

    def receive(call):
        heard.put(call)
        if heard.qsize() == 1:
            raise ValueError("a defect")

    listener = Listener(redis_url, host, receive)
    wakeups.wake(host, IDS.new(IdKind.CALL))
    wait_for(heard.qsize, "the first")
    call = IDS.new(IdKind.CALL)
    wakeups.wake(host, call)
    wait_for(lambda: heard.qsize() == 2, "the second")
    listener.close()


def test_listening_to_a_redis_that_is_not_there_ends_when_closed(tmp_path):
    listener = Listener(f"unix://{tmp_path}/none.sock", HostId(IDS.new(IdKind.HOST)), print)
    listener.close()
    wait_for(lambda: not listener._thread.is_alive(), "the thread to end")
