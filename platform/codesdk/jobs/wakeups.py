"""The queue's port, its RQ implementation and its fake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer
from rq.utils import now, utcformat

from codesdk.domain.circuit_breaker import CircuitBreaker
from codesdk.domain.ids import HostId, IdKind, Ids, is_id
from codesdk.errors import ExitCode, Fault

JOB_FUNCTION = "codesdk.jobs.wakeups.look"
"""The only function name that we enqueue. Workers neither import nor read it (docs/adr/0005)."""

_SUBJECTS = (IdKind.CALL, IdKind.SESSION)


class QueueUnavailable(Fault):
    """Redis does not answer."""

    code = "QUEUE_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class Wakeups(Protocol):
    """Tells a host's worker that there is something to do."""

    def wake(self, host: HostId, subject: str) -> None:
        """`subject`: the id of the call or session that changed. May be lost: the worker polls as well."""
        ...

    def check(self) -> None:
        """Raise QueueUnavailable unless the queue answers."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class LocalWakeups:
    """Wake-ups inside one process: the fake, and embedded mode."""

    def __init__(self) -> None:
        self._workers: dict[HostId, Callable[[str], None]] = {}

    def bind(self, host: HostId, on_wake: Callable[[str], None]) -> None:
        """Deliver the host's wake-ups to `on_wake`."""
        self._workers[host] = on_wake

    def wake(self, host: HostId, subject: str) -> None:
        """Call the host's worker, where one is bound."""
        on_wake = self._workers.get(host)
        if on_wake is not None:
            on_wake(subject)

    def check(self) -> None:
        """Always there."""

    def close(self) -> None:
        """Forget the workers."""
        self._workers.clear()


TTL_S = 60
"""A wake-up that nobody took so long is stale: the worker's own poll has long seen the row."""


RETRY_S = 1.0
"""Seconds without a wake-up after one that Redis did not take: one that stands still costs each its time-out."""


class RqWakeups:
    """One RQ queue per host."""

    def __init__(self, redis_url: str, ids: Ids) -> None:
        self._redis = Redis.from_url(redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)
        self._ids = ids
        self._pause = CircuitBreaker(RETRY_S)
        self._queues: dict[HostId, tuple[Queue, dict[Any, Any]]] = {}

    def wake(self, host: HostId, subject: str) -> None:
        """Enqueue the pinned name with the subject in the job's id.

        Raises:
            RedisError: the message was not sent; the row is there and will be found. For `RETRY_S` after that none is.
        """
        self._pause.attempt(lambda: self._send(host, subject))

    def _send(self, host: HostId, subject: str) -> None:
        queue, fields = self._queues.get(host) or self._make(host)
        job_id = f"{subject}-{self._ids.new(IdKind.REQUEST)}"
        time = utcformat(now())
        # What `Queue.enqueue` writes, but made once for all wake-ups of the host: they differ by id and time alone.
        with self._redis.pipeline(transaction=False) as pipeline:
            key = Job.key_for(job_id)
            pipeline.hset(key, mapping={**fields, "created_at": time, "enqueued_at": time})
            pipeline.expire(key, TTL_S)
            pipeline.sadd(Queue.redis_queues_keys, queue.key)
            queue.push_job_id(job_id, pipeline=pipeline)
            pipeline.execute()

    def _make(self, host: HostId) -> tuple[Queue, dict[Any, Any]]:
        queue = Queue(queue_name(host), connection=self._redis, serializer=JSONSerializer)
        job = queue.create_job(JOB_FUNCTION, result_ttl=0, failure_ttl=0, ttl=TTL_S, status=JobStatus.QUEUED)
        job.origin, job.timeout = queue.name, Queue.DEFAULT_TIMEOUT
        made = (queue, {**job.to_dict(), "status": JobStatus.QUEUED.value})
        self._queues[host] = made
        return made

    def check(self) -> None:
        """Ask Redis.

        Raises:
            QueueUnavailable: no answer.
        """
        try:
            self._redis.ping()
        except (RedisError, OSError) as error:
            raise QueueUnavailable(
                f"Redis does not answer: {error}.",
                advice="Start it (`codesdk up` brings one) or set CODESDK_REDIS_URL.",
            ) from error

    def close(self) -> None:
        """Close the connection pool."""
        self._redis.close()


def queue_name(host: HostId) -> str:
    """The RQ queue of that host."""
    return f"codesdk-{host}"


def subject_of_job(job_id: str) -> str | None:
    """The call or session that a job's id names; None for anything that is not exactly of our form."""
    subject, _, nonce = job_id.partition("-")
    known = any(is_id(subject, kind) for kind in _SUBJECTS)
    return subject if known and is_id(nonce, IdKind.REQUEST) else None


def look() -> None:
    """What the pinned name resolves to, for a stock RQ worker that reads the queue by mistake: nothing happens."""
