"""The contract of the hints port, for every implementation."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import pytest
from redis import Redis
from redis.exceptions import RedisError

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import IdKind, RandomIds, SessionId, ToolCallId
from codesdk.eventlog.hints import CHANNEL, LocalHints, RedisHints
from stage import DEADLINE_S, wait_for

IDS = RandomIds(ManualClock())


def session():
    return SessionId(IDS.new(IdKind.SESSION))


@pytest.fixture(params=["fake", pytest.param("redis", marks=pytest.mark.redis)])
def hints(request):
    made = LocalHints() if request.param == "fake" else RedisHints(request.getfixturevalue("redis_url"))
    yield made
    made.close()


def test_every_listener_hears_a_hint(hints):
    heard: list[SimpleQueue[str]] = [SimpleQueue(), SimpleQueue()]
    for listener in heard:
        hints.listen(listener.put)
    one = session()
    hints.publish(one)
    assert [listener.get(timeout=DEADLINE_S) for listener in heard] == [one, one]


def test_the_end_of_a_call_is_heard_by_those_who_follow_the_session_and_by_those_who_wait_for_the_call(hints):
    grown: SimpleQueue[str] = SimpleQueue()
    ended: SimpleQueue[str] = SimpleQueue()
    hints.listen(grown.put)
    hints.listen_for_call_ends(ended.put)
    one, call = session(), ToolCallId(IDS.new(IdKind.CALL))
    hints.publish_call_end(one, call)
    assert (grown.get(timeout=DEADLINE_S), ended.get(timeout=DEADLINE_S)) == (one, call)
    hints.publish(one)
    assert grown.get(timeout=DEADLINE_S) == one
    assert ended.empty()


def test_a_hint_before_anybody_listens_is_lost_and_no_error(hints):
    hints.publish(session())


def test_hints_of_one_publisher_keep_their_order(hints):
    heard: SimpleQueue[str] = SimpleQueue()
    hints.listen(heard.put)
    sent = [session() for _ in range(20)]
    for one in sent:
        hints.publish(one)
    first = [heard.get(timeout=DEADLINE_S) for _ in range(20)]
    assert list(dict.fromkeys(first)) == list(dict.fromkeys(one for one in sent if one in first))


def test_nothing_is_heard_after_closing(hints):
    heard = []
    hints.listen(heard.append)
    hints.close()
    LocalHints().publish(session())
    assert heard == []


@pytest.mark.redis
def test_another_process_hears_a_hint(redis_url):
    here, there = RedisHints(redis_url), RedisHints(redis_url)
    heard = []
    there.listen(heard.append)
    one = session()
    try:
        wait_for(lambda: (here.publish(one), heard)[1], "the hint")
        assert set(heard) == {one}
    finally:
        here.close()
        there.close()


@pytest.mark.redis
def test_another_process_hears_of_an_end(redis_url):
    here, there = RedisHints(redis_url), RedisHints(redis_url)
    heard = []
    there.listen_for_call_ends(heard.append)
    call = ToolCallId(IDS.new(IdKind.CALL))
    try:
        wait_for(lambda: (here.publish_call_end(session(), call), heard)[1], "the hint")
        assert set(heard) == {call}
    finally:
        here.close()
        there.close()


@pytest.mark.redis
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x",
        b"\xff\xfe",
        b"call_00000000000000000000000000",
        b"ses_" + b"0" * 10_000,
        b"ses_0000000000000000000000000I",
        b"ses_00000000000000000000000000 x",
        b"ses_00000000000000000000000000 prn_00000000000000000000000000",
        b"ses_00000000000000000000000000 call_00000000000000000000000000 x",
        b"x call_00000000000000000000000000",
    ],
)
def test_what_is_no_id_passes_nobody(redis_url, message):
    hints, heard = RedisHints(redis_url), []
    hints.listen(heard.append)
    redis = Redis.from_url(redis_url)
    one = session()
    try:
        wait_for(lambda: redis.publish(CHANNEL, f"another {one}") and heard, "the subscription")
        redis.publish(CHANNEL, message)
        redis.publish(CHANNEL, b"another " + message)
        wait_for(lambda: (redis.publish(CHANNEL, f"another {one}"), len(heard) > 2)[1], "more hints")
        assert set(heard) == {one}
    finally:
        redis.close()
        hints.close()


@pytest.mark.redis
def test_a_lost_subscription_is_taken_up_again(redis_url):
    hints, heard = RedisHints(redis_url), []
    hints.RETRY_S = 0.05
    hints.listen(heard.append)
    redis = Redis.from_url(redis_url)
    one = session()
    try:
        wait_for(lambda: redis.publish(CHANNEL, f"another {one}") and heard, "the subscription")
        redis.client_kill_filter(_type="pubsub")
        heard.clear()
        wait_for(lambda: (redis.publish(CHANNEL, f"another {one}"), heard)[1], "the next subscription")
    finally:
        redis.close()
        hints.close()


def test_publishing_to_a_redis_that_is_away_fails_soon_and_reaches_this_process(tmp_path):
    hints, heard = RedisHints(f"unix://{tmp_path}/none.sock"), []
    hints.listen(heard.append)
    one, began = session(), time.monotonic()
    with pytest.raises(RedisError):
        hints.publish(one)
    assert time.monotonic() - began < 30
    assert heard == [one]
    hints.close()


@pytest.mark.redis
def test_closing_ends_the_thread(redis_url):
    hints = RedisHints(redis_url)
    hints.listen(lambda _: None)
    hints.close()
    assert not [thread for thread in threading.enumerate() if thread is hints._thread and thread.is_alive()]
