"""Threads that wait for messages of one stream: one reads for all, and none is left without a reader."""

from __future__ import annotations

import random
import threading
import time
from queue import Empty, SimpleQueue

import pytest

from codesdk.sandbox.channel.connection import SharedReader

DEADLINE_S = 60.0


class Post:
    """A stream of (inbox, item), and who read it."""

    def __init__(self) -> None:
        self.letters: SimpleQueue = SimpleQueue()
        self.readers: list[str] = []
        self.reading = SharedReader(self.read)
        self.at_once = 0

    def read(self, timeout_s: float) -> None:
        self.at_once += 1
        assert self.at_once == 1, "two read at once"
        self.readers.append(threading.current_thread().name)
        try:
            inbox, item = self.letters.get(timeout=timeout_s)
        except Empty:
            return
        finally:
            self.at_once -= 1
        inbox.put(item)


def test_who_waits_alone_reads_itself():
    post, inbox = Post(), SimpleQueue()
    post.letters.put((inbox, "a"))
    assert post.reading.wait(inbox, DEADLINE_S) == "a"
    assert post.readers == [threading.current_thread().name]


def test_what_is_another_s_is_handed_to_it():
    post, mine, other = Post(), SimpleQueue(), SimpleQueue()
    for letter in ((other, "b"), (mine, "a")):
        post.letters.put(letter)
    assert post.reading.wait(mine, DEADLINE_S) == "a"
    assert post.reading.wait(other, DEADLINE_S) == "b"
    assert len(post.readers) == 2


def test_nothing_in_time_is_said_and_not_waited_for():
    post = Post()
    with pytest.raises(Empty):
        post.reading.wait(SimpleQueue(), 0.01)
    with pytest.raises(Empty):
        post.reading.wait(SimpleQueue(), 0.0)


def test_the_turn_goes_on_to_who_still_waits():
    post, first, second = Post(), SimpleQueue(), SimpleQueue()
    got = SimpleQueue()
    threads = [
        threading.Thread(target=lambda inbox=inbox: got.put(post.reading.wait(inbox, DEADLINE_S)), daemon=True)
        for inbox in (first, second)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + DEADLINE_S
    while len(post.reading._waiting) < 2:
        assert time.monotonic() < until
        time.sleep(0.001)
    post.letters.put((first, "first"))
    assert got.get(timeout=DEADLINE_S) == "first"
    post.letters.put((second, "second"))
    assert got.get(timeout=DEADLINE_S) == "second"


def test_while_a_thread_reads_for_all_the_others_only_wait():
    post, inbox, over = Post(), SimpleQueue(), threading.Event()

    def read_on() -> None:
        with post.reading.exclusive():
            while not over.is_set():
                post.read(0.01)

    thread = threading.Thread(target=read_on, name="keeper")
    thread.start()
    while not post.readers:
        time.sleep(0.001)
    post.letters.put((inbox, "a"))
    assert post.reading.wait(inbox, DEADLINE_S) == "a"
    over.set()
    thread.join(DEADLINE_S)
    assert set(post.readers) == {"keeper"}
    post.letters.put((inbox, "b"))
    assert post.reading.wait(inbox, DEADLINE_S) == "b"


def test_many_threads_each_get_all_of_their_own_in_order():
    post, count, each = Post(), 8, 200
    inboxes = [SimpleQueue() for _ in range(count)]
    got: list[list[int]] = [[] for _ in range(count)]

    def work(number: int) -> None:
        for _ in range(each):
            got[number].append(post.reading.wait(inboxes[number], DEADLINE_S))
            post.reading.poll()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    order = [number for number in range(count) for _ in range(each)]
    random.Random(7).shuffle(order)
    sent = [0] * count
    for number in order:
        post.letters.put((inboxes[number], sent[number]))
        sent[number] += 1
    for thread in threads:
        thread.join(DEADLINE_S)
    assert got == [list(range(each))] * count
