from __future__ import annotations

import os
import signal
import threading

import pytest

from codesdk.worker.lifecycle.shutdown import SIGNALS, Shutdown
from stage import wait_for


@pytest.fixture
def left():
    return []


@pytest.fixture
def leaving(left):
    made = Shutdown(left.append)
    before = [signal.getsignal(number) for number in SIGNALS]
    with made.listening():
        yield made
    assert [signal.getsignal(number) for number in SIGNALS] == before


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_second_ends_the_process_at_once(leaving, left, number):
    send(number)
    leaving.wait()
    assert left == []
    send(signal.SIGTERM)
    wait_for(lambda: left == [128 + signal.SIGTERM], "the process to be ended")


def test_a_worker_that_hangs_while_it_starts_ends_with_its_time(left):
    slow = Shutdown(left.append, within_s=0.05)
    with slow.listening():
        send(signal.SIGTERM)
        wait_for(lambda: left == [128 + signal.SIGKILL], "the process to be ended, though nobody waits")


def test_a_signal_that_came_before_anybody_waited_counts(leaving):
    send(signal.SIGTERM)
    send(signal.SIGINT)
    leaving.wait()


def test_a_worker_that_finds_itself_unwanted_asks_as_a_signal_does(leaving):
    asking = threading.Thread(target=leaving.ask)
    asking.start()
    leaving.wait()
    asking.join()


def test_a_second_signal_is_heard_while_the_main_thread_hangs(leaving, left):
    send(signal.SIGTERM)
    leaving.wait()
    hanging = threading.Event()
    telling = threading.Thread(target=lambda: (send(signal.SIGINT), wait_for(lambda: left, "the end"), hanging.set()))
    telling.start()
    assert hanging.wait(30)
    telling.join()
    assert left == [128 + signal.SIGINT]


def test_what_hangs_while_a_worker_leaves_ends_with_the_process():
    ended = threading.Event()
    leaving = Shutdown(lambda code: (code == 128 + signal.SIGKILL) and ended.set())
    with leaving.listening():
        leaving.force_exit_after(0.01)
        assert ended.wait(30)
