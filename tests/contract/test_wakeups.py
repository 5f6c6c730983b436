"""The contract of the wake-ups port, for every implementation; the worker's listener takes them off the queue."""

from __future__ import annotations

import re
from queue import Empty, SimpleQueue

import pytest
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import HostId, IdKind, RandomIds
from codesdk.jobs import LocalWakeups, QueueUnavailable, RqWakeups, queue_name, subject_of_job
from codesdk.jobs.wakeups import JOB_FUNCTION
from codesdk.worker.calls.listener import Listener
from stage import DEADLINE_S, wait_for

IDS = RandomIds(ManualClock())


@pytest.fixture
def host():
    return HostId(IDS.new(IdKind.HOST))


@pytest.fixture(params=["fake", pytest.param("redis", marks=pytest.mark.redis)])
def wired(request, host):
    """Wake-ups, and what the host's worker hears of them."""
    heard: SimpleQueue[str] = SimpleQueue()
    if request.param == "fake":
        wakeups, listener = LocalWakeups(), None
        wakeups.bind(host, heard.put)
    else:
        url = request.getfixturevalue("redis_url")
        wakeups, listener = RqWakeups(url, IDS), Listener(url, host, heard.put)
    yield wakeups, heard
    if listener is not None:
        listener.close()
    wakeups.close()


@pytest.mark.parametrize("kind", [IdKind.CALL, IdKind.SESSION])
def test_the_hosts_worker_hears_the_subject(wired, host, kind):
    wakeups, heard = wired
    subject = IDS.new(kind)
    wakeups.wake(host, subject)
    assert heard.get(timeout=DEADLINE_S) == subject


def test_the_same_subject_may_be_told_often(wired, host):
    wakeups, heard = wired
    subject = IDS.new(IdKind.CALL)
    for _ in range(5):
        wakeups.wake(host, subject)
    assert [heard.get(timeout=DEADLINE_S) for _ in range(5)] == [subject] * 5


def test_another_hosts_wake_up_is_not_heard(wired, host):
    wakeups, heard = wired
    wakeups.wake(HostId(IDS.new(IdKind.HOST)), IDS.new(IdKind.CALL))
    subject = IDS.new(IdKind.CALL)
    wakeups.wake(host, subject)
    assert heard.get(timeout=DEADLINE_S) == subject
    with pytest.raises(Empty):
        heard.get(timeout=0.05)


def test_a_queue_that_is_there_checks_out(wired):
    wired[0].check()


def test_a_queue_that_is_away_says_what_to_do(tmp_path):
    wakeups = RqWakeups(f"unix://{tmp_path}/none.sock", IDS)
    with pytest.raises(QueueUnavailable, match="codesdk up") as away:
        wakeups.check()
    assert away.value.retryable
    wakeups.close()


@pytest.mark.redis
def test_a_wake_up_that_was_taken_leaves_nothing_in_redis(redis_url, host):
    heard: SimpleQueue[str] = SimpleQueue()
    wakeups, listener = RqWakeups(redis_url, IDS), Listener(redis_url, host, heard.put)
    calls = [IDS.new(IdKind.CALL) for _ in range(3)]
    for call in calls:
        wakeups.wake(host, call)
        heard.get(timeout=DEADLINE_S)
    redis = Redis.from_url(redis_url)
    queue = f"rq:queue:{queue_name(host)}"
    wait_for(lambda: not any(list(redis.scan_iter(f"*{call}*")) for call in calls), "the messages to go")
    wait_for(lambda: not redis.exists(queue, f"{queue}:intermediate"), "the queue to be empty")
    redis.close()
    listener.close()
    wakeups.close()


@pytest.mark.redis
def test_a_wake_up_is_stored_as_rq_itself_would_store_it(redis_url, host):
    redis = Redis.from_url(redis_url)
    wakeups = RqWakeups(redis_url, IDS)
    call = IDS.new(IdKind.CALL)
    wakeups.wake(host, call)
    queue = Queue(queue_name(host), connection=redis, serializer=JSONSerializer)
    (ours,) = queue.get_job_ids()
    theirs = queue.enqueue(JOB_FUNCTION, job_id=f"{call}-x", result_ttl=0, failure_ttl=0, ttl=60).id
    stored, expected = ({**redis.hgetall(f"rq:job:{job}")} for job in (ours, theirs))
    times = (b"created_at", b"enqueued_at")
    assert all(
        re.fullmatch(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", fields.pop(name)) for name in times for fields in (stored, expected)
    )
    assert stored == expected
    assert queue in Queue.all(connection=redis)
    queue.delete(delete_jobs=True)
    redis.close()
    wakeups.close()


@pytest.mark.redis
def test_a_wake_up_that_nobody_takes_goes_away(redis_url, host):
    wakeups = RqWakeups(redis_url, IDS)
    wakeups.wake(host, IDS.new(IdKind.CALL))
    redis = Redis.from_url(redis_url)
    (job,) = redis.lrange(f"rq:queue:{queue_name(host)}", 0, -1)
    stored = redis.hgetall(b"rq:job:" + job)
    assert float(stored[b"ttl"]) == 60
    assert 0 < redis.ttl(b"rq:job:" + job) <= 60
    redis.close()
    wakeups.close()


@pytest.mark.redis
def test_a_wake_up_whose_message_has_expired_is_not_heard(redis_url, host):
    redis = Redis.from_url(redis_url)
    wakeups = RqWakeups(redis_url, IDS)
    wakeups.wake(host, IDS.new(IdKind.CALL))
    (job,) = redis.lrange(f"rq:queue:{queue_name(host)}", 0, -1)
    redis.delete(b"rq:job:" + job)
    call = IDS.new(IdKind.CALL)
    wakeups.wake(host, call)
    heard: SimpleQueue[str] = SimpleQueue()
    listener = Listener(redis_url, host, heard.put)
    assert heard.get(timeout=DEADLINE_S) == call
    listener.close()
    wakeups.close()
    redis.close()


@pytest.mark.parametrize(
    "job",
    [
        "",
        "-",
        "x",
        "call_",
        "call_00000000000000000000000000",
        "call_00000000000000000000000000-x",
        "prn_00000000000000000000000000-req_00000000000000000000000000",
        "call_00000000000000000000000000-req_00000000000000000000000000-x",
        "call_00000000000000000000000000\n-req_00000000000000000000000000",
        "call_00000000000000000000000000-call_00000000000000000000000000",
        "../../etc/passwd",
        "os.system",
    ],
)
def test_what_is_no_id_of_ours_names_no_subject(job):
    assert subject_of_job(job) is None
