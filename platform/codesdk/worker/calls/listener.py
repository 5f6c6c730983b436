"""Listens for wake-ups on the host's RQ queue. Uses only a message's validated id; runs no code from a message."""

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
"""RQ blocks on an empty queue for this time minus 15 s, so a closed listener ends within 5 s."""
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
        """Called on each iteration of RQ's loop, and used to leave the loop before it takes another message."""
        if self._closing.is_set():
            raise StopRequested
        # RQ beats three times per message, in nine round trips. One every 5 s is enough.
        if pipeline is not None or monotonic() >= self._next_beat:
            self._next_beat = monotonic() + HEARTBEAT_S
            super().heartbeat(timeout, pipeline)

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Deliver wake-ups one by one until the loop ends.

        RQ's own version needs five round trips per message and reads the whole job. This one needs two and reads nothing
        of the job, which may be forged: deleting the key shows whether it still existed.
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
        """No command channel: anyone with access to Redis could shut workers down through it."""

    def unsubscribe(self) -> None:
        """Nothing was subscribed."""

    def run_maintenance_tasks(self) -> None:
        """Disabled: it would run failure callbacks and webhooks of forged jobs. Our wake-ups leave nothing to clean up."""

    def procline(self, message: str) -> None:
        """The process keeps its own title."""


class Listener:
    """Runs the RQ loop on a daemon thread and restarts it when it ends."""

    def __init__(self, redis_url: str, host: HostId, on_wake: Callable[[str], None]) -> None:
        self._redis_url = redis_url
        self._host = host
        self._on_wake = on_wake
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="codesdk-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more wake-ups. The thread ends after its current blocking read, within seconds."""
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
            except Exception:  # noqa: BLE001 (the loop restarts after any error)
                # RQ gives up on a dead Redis or a message that it cannot read; the poll bridges the gap.
                _log.warning("listening to the queue is interrupted", exc_info=True)
            finally:
                connection.close()
            self._closing.wait(RESTART_S)

    def _deliver(self, subject: str) -> Any:
        if not self._closing.is_set():
            self._on_wake(subject)
