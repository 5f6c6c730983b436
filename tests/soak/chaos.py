"""Calls that count their own executions, while workers are killed or told to end and Redis is restarted at random."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from installation import Installation

from codesdk.domain.invariants import check
from codesdk.errors import Fault
from codesdk.provision import redis_server
from codesdk.toolcalls.stored import Finished
from stage import read_whole

LEFT_S = 120.0
"""Seconds in which a worker that was told to end has left: its own limit is 80."""


class Chaos(Installation):
    """An installation with a Redis of its own. Each session is used by one client."""

    def __init__(self, root: Path, docker_host: str) -> None:
        self._redis = redis_server.ensure(root / "redis", lambda _: None)
        self._redis_root = root / "redis"
        super().__init__(root, self._redis.url, docker_host, pool=1)
        self.told = 0
        self.redis_restarts = 0
        self.ran: Counter[str] = Counter()
        """How often each call's line ran, as the line itself wrote it into its workspace."""
        self._lock = threading.Lock()

    # -- faults --------------------------------------------------------------------------------------------------------

    def disturb(self, chance: random.Random, stop: threading.Event) -> None:
        """One thing after the other, each a while after the worker serves; each kind at the beginning, then by chance."""
        first = ["redis", "tell", "kill"]
        while self.wait_ready(stop) and not stop.wait(chance.uniform(0.1, 2.5)):
            what = first.pop() if first else chance.choices(("kill", "tell", "redis"), (6, 2, 2))[0]
            if what == "kill":
                self.kill_worker()
            elif what == "tell":
                self._tell_worker()
            else:
                self._restart_redis(chance.uniform(0.0, 1.0))

    def _tell_worker(self) -> None:
        self.worker.terminate()
        self.worker.wait(LEFT_S)
        self.told += 1
        self.worker = self._launch()

    def _restart_redis(self, away_s: float) -> None:
        self._redis.stop()
        time.sleep(away_s)
        self._redis = redis_server.ensure(self._redis_root, lambda _: None)
        self.redis_restarts += 1

    # -- a client ------------------------------------------------------------------------------------------------------

    def make_calls(self, client: int, number: int) -> None:
        """So many calls of one session, one after the other, and what they say of how often each of them ran."""
        session, token = self._open()
        subject = self.services.directory.subject(token)
        marks: dict[str, str] = {}
        for place in range(number):
            mark = f"c{client}-{place}"
            pause = "sleep 1; " if place % 2 else ""  # one that is under way for a while, and a quick one
            call = self._submit({"command": f"echo {mark} >> runs; {pause}cat runs"}, subject)
            marks[mark] = call
            self.outcomes[self._end(call)] += 1
            self._note(call, subject)
        self._check(marks, subject)
        self.services.sessions.close(session.tenant_id, session.id)
        self.outcomes["sessions"] += 1

    def _submit(self, given: dict[str, Any], subject: Any) -> str:
        while True:
            try:
                return self.services.pipeline.submit("workspace.exec", given, subject).identity.tool_call_id
            except Fault as fault:
                if not fault.retryable:
                    raise
                time.sleep(0.1)

    def _note(self, call: str, subject: Any) -> None:
        """What the workspace's own record says by now."""
        found = self.services.pipeline.find(subject.tenant_id, subject.session_id, call)
        structured = found.result.structured if isinstance(found, Finished) else None
        seen = Counter((structured or {}).get("stdout", "").split())
        with self._lock:
            self.ran |= seen

    def _check(self, marks: dict[str, str], subject: Any) -> None:
        events = read_whole(self.services.log, subject.session_id)
        assert check(events) is None
        ends = Counter(
            event.payload["tool_call_id"]
            for event in events
            if event.type.value in ("tool.call.completed", "tool.call.denied")
        )
        assert ends == Counter(marks.values())
        errors = {event.payload["tool_call_id"] for event in events if event.payload.get("is_error")}
        with self._lock:
            assert all(self.ran[mark] == 1 for mark, call in marks.items() if call not in errors)

    def close(self) -> None:
        super().close()
        self._redis.stop()
