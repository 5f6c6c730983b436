"""Listens to the host's RQ queue. Nothing of a message but its validated id is used, and RQ runs no code of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer

from codesdk.domain.ids import HostId
from codesdk.jobs import queue_name, subject_of_job

_log = logging.getLogger(__name__)

WORKER_TTL_S = 20
"""RQ blocks for at most this less 15 s on an empty queue, so that a closed listener ends soon."""
RESTART_S = 1.0
HEARTBEAT_S = 5.0


class WakeupWorker(SimpleWorker):
    """An RQ worker whose jobs are wake-ups: no fork, no import of a job's function, no result, no remote commands."""

    def __init__(
        self, queue: Queue, on_wake: Callable[[str], None], connection: Redis, closing: threading.Event
    ) -> None:
        """`on_wake` takes the id of a call or session and must return at once; `closing` ends the loop."""
        super().__init__(
            [queue],
            connection=connection,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_S,
            log_job_description=False,  # a forged job's description would be logged
        )
        self._on_wake = on_wake
        self._closing = closing
        self._next_beat = 0.0

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Each turn of RQ's loop comes by here: the place to leave it, before it takes another message away."""
        if self._closing.is_set():
            raise StopRequested
        # RQ would say it three times a message, in nine round trips; nobody here reads it more than now and then.
        if pipeline is not None or monotonic() >= self._next_beat:
            self._next_beat = monotonic() + HEARTBEAT_S
            super().heartbeat(timeout, pipeline)

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Hand wake-ups over, one after the other, until the loop is left.

        RQ's own asks Redis five times for each and reads the whole job. Here it is twice, and of a job that anybody may
        have forged nothing is read: dropping it says whether it was still there.
        """
        del max_idle_time  # None, as `work` was called
        queue = self.queues[0]
        while True:
            self.heartbeat()
            try:
                taken: Any = self.connection.blpop([queue.key], timeout)
                job_id = taken[1].decode("utf-8", "replace") if taken else ""
                is_fresh = bool(job_id) and bool(self.connection.delete(Job.key_for(job_id)))
            except RedisError as error:
                _log.warning("the queue cannot be read (%s); the poll bridges the gap", error)
                raise StopRequested from error
            if is_fresh:
                self._hand_over(job_id, queue)

    def _hand_over(self, job_id: str, queue: Queue) -> None:
        subject = subject_of_job(job_id)
        if subject is None:
            _log.warning("a message on %s is not of our form and was dropped", queue.name)
        else:
            self._on_wake(subject)

    def _install_signal_handlers(self) -> None:
        """The process handles signals; this loop runs on a thread."""

    def subscribe(self) -> None:
        """No command channel: whoever reaches Redis could shut workers down through it."""

    def unsubscribe(self) -> None:
        """Nothing was subscribed."""

    def run_maintenance_tasks(self) -> None:
        """None: it would run the failure callbacks and send the webhooks of forged jobs. Ours leave nothing behind."""

    def procline(self, message: str) -> None:
        """The process keeps its own title."""


class Listener:
    """Runs the RQ loop on a daemon thread and starts it again whenever it ends."""

    def __init__(self, redis_url: str, host: HostId, on_wake: Callable[[str], None]) -> None:
        self._redis_url = redis_url
        self._host = host
        self._on_wake = on_wake
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="codesdk-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more wake-ups. The thread may sit in a blocking read for some seconds, and ends after it."""
        self._closing.set()

    def _listen(self) -> None:
        for name in ("rq.worker", "rq.job"):
            logging.getLogger(name).setLevel(logging.WARNING)
        while not self._closing.is_set():
            connection = Redis.from_url(self._redis_url, socket_timeout=None, socket_connect_timeout=2.0)
            try:
                queue = Queue(queue_name(self._host), connection=connection, serializer=JSONSerializer)
                connection.delete(queue.intermediate_queue_key)  # messages that could not be read, if any
                WakeupWorker(queue, self._deliver, connection, self._closing).work(logging_level="WARNING")
            except Exception:  # noqa: BLE001 (whatever RQ raises, the loop starts again)
                # RQ gives up on a dead Redis or a message that it cannot read; the poll bridges the gap.
                _log.warning("listening to the queue is interrupted", exc_info=True)
            finally:
                connection.close()
            self._closing.wait(RESTART_S)

    def _deliver(self, subject: str) -> Any:
        if not self._closing.is_set():
            self._on_wake(subject)
