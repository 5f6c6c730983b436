"""Anyone who can write to Redis can put any job into the queue. It must run nothing, and the listener must continue."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import zlib
from queue import SimpleQueue

import pytest
from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer, PickleSerializer

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import HostId, IdKind, RandomIds
from codesdk.jobs import RqWakeups, queue_name
from codesdk.worker.calls.listener import Listener
from stage import wait_for

pytestmark = pytest.mark.redis
IDS = RandomIds(ManualClock())
LATE_S = 30.0


class Bomb:
    """Unpickling it leaves a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


class Attack:
    """A queue with a listener, and somebody who writes what they like into Redis."""

    def __init__(self, redis_url, tmp_path):
        self.url = redis_url
        self.mark = tmp_path / "ran"
        self.redis = Redis.from_url(redis_url)
        self.host = HostId(IDS.new(IdKind.HOST))
        self.name = queue_name(self.host)
        self.heard = SimpleQueue()
        self.wakeups = RqWakeups(redis_url, IDS)
        self.listener = None

    def listen(self):
        self.listener = Listener(self.url, self.host, self.heard.put)

    def push(self, job_id, fields=None):
        if fields is not None:
            self.redis.hset(f"rq:job:{job_id}", mapping=fields)
        self.redis.rpush(f"rq:queue:{self.name}", job_id)

    def survives(self):
        """The next honest wake-up arrives, and nothing ran."""
        subject = IDS.new(IdKind.CALL)
        self.wakeups.wake(self.host, subject)
        heard = []
        deadline = time.monotonic() + LATE_S
        while subject not in heard and time.monotonic() < deadline:
            heard.append(self.heard.get(timeout=LATE_S))
        assert heard[-1] == subject
        assert not self.mark.exists()
        return heard[:-1]

    def close(self):
        if self.listener is not None:
            self.listener.close()
        self.wakeups.close()
        self.redis.close()


@pytest.fixture
def attack(redis_url, tmp_path):
    made = Attack(redis_url, tmp_path)
    yield made
    made.close()


def ours():
    return f"{IDS.new(IdKind.CALL)}-{IDS.new(IdKind.REQUEST)}"


@pytest.mark.parametrize("serializer", [JSONSerializer, PickleSerializer], ids=["json", "pickle"])
@pytest.mark.parametrize("job_id", ["mine", "ours"])
def test_a_forged_job_runs_nothing(attack, serializer, job_id):
    attack.listen()
    queue = Queue(attack.name, connection=attack.redis, serializer=serializer)
    queue.enqueue("os.system", f"touch {attack.mark}", job_id=ours() if job_id == "ours" else "mine")
    heard = attack.survives()
    assert len(heard) == (job_id == "ours")  # a well-formed id is a wake-up, whatever else the message says


def test_a_pickled_bomb_does_not_go_off(attack):
    attack.listen()
    bomb = zlib.compress(pickle.dumps(("os.system", None, (Bomb(attack.mark),), {})))
    plain = pickle.dumps(Bomb(attack.mark))
    for field in ("data", "result", "meta", "exc_info", "dependency_ids", "group_id"):
        attack.push(ours(), {"created_at": "2026-01-01T00:00:00Z", "origin": attack.name, "data": bomb, field: plain})
        attack.push(ours(), {"created_at": "2026-01-01T00:00:00Z", "origin": attack.name, "data": plain, field: bomb})
    attack.survives()


@pytest.mark.parametrize(
    "fields",
    [
        {"data": b"\xff\xff"},
        {"created_at": "never", "data": b"x", "origin": "x"},
        {"timeout": "x", "result_ttl": "y", "ttl": "z", "data": b"x"},
        {"status": "\xff", "enqueued_at": "1", "data": b"", "meta": "{"},
        {"data": b"x" * 1_000_000},
        {"success_callback_name": "os.system", "failure_callback_name": "os.system", "data": b""},
        None,
    ],
    ids=["bytes", "dates", "numbers", "status", "large", "callbacks", "none"],
)
def test_a_broken_message_does_not_stop_the_listener(attack, fields):
    attack.listen()
    attack.push(ours(), fields)
    attack.push("x" * 10_000, fields)
    attack.push(b"\xff\xfe", None)
    attack.survives()


def test_messages_that_cannot_be_read_do_not_pile_up(attack):
    attack.listen()
    for _ in range(3):
        attack.push(ours(), {"created_at": "never", "data": b"x"})
    attack.survives()
    wait_for(lambda: not attack.redis.exists(f"rq:queue:{attack.name}:intermediate"), "the leftovers to go", LATE_S)


def test_a_job_that_seems_abandoned_gets_no_callback_and_no_webhook(attack, tmp_path, monkeypatch):
    # RQ's own maintenance would import and call the failure callback that a forged job names.
    (tmp_path / "forged_callback.py").write_text(f"open({str(attack.mark)!r}, 'w')\ndef call(*_): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    job_id = "abandoned"
    attack.redis.hset(
        f"rq:job:{job_id}",
        mapping={
            "created_at": "2026-01-01T00:00:00Z",
            "status": "started",
            "origin": attack.name,
            "data": zlib.compress(json.dumps(["os.system", None, ["true"], {}]).encode()),
            "failure_callback_name": "forged_callback.call",
            "failure_callback_timeout": "60",
        },
    )
    attack.redis.zadd(f"rq:wip:{attack.name}", {f"{job_id}:execution": 1})
    attack.redis.rpush(f"rq:queue:{attack.name}:intermediate", job_id)
    attack.listen()
    attack.survives()
    assert "forged_callback" not in sys.modules


def test_commands_over_redis_reach_no_listener(attack):
    attack.listen()
    attack.survives()
    for name in [key.decode().removeprefix("rq:worker:") for key in attack.redis.scan_iter("rq:worker:*")]:
        for command in ("shutdown", "kill-horse", "stop-job"):
            attack.redis.publish(f"rq:pubsub:{name}", json.dumps({"command": command, "job_id": "x"}))
    attack.survives()


def test_a_redis_that_hangs_up_is_listened_to_again(attack):
    attack.listen()
    attack.survives()
    attack.redis.client_kill_filter(_type="normal", skipme=True)
    attack.survives()
