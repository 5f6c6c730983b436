"""An installation whose worker is a separate process, killed again and again, and its leftovers on the machine."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import evidence
from remains import Remains
from sqlalchemy import text

from codesdk.bootstrap import Services
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import NewSession, NoHost
from codesdk.settings import Settings, runfile
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Denied, Finished
from stage import POLICY, stored_call, wait_for

READY_S = 120.0
"""Seconds in which a worker must serve, on a machine that does much else."""
START_S = 2.0
"""Seconds that a worker takes to serve on a machine that is at rest. Where it took longer, all takes longer."""
MOST_SLOWNESS = 2.0
"""Beyond that it would live so long that a short soak kills nobody."""
CALL_S = 180.0
POLL_S = 0.1
SETTLE_S = 900.0


class Installation:
    """The API's part runs here; the worker there."""

    def __init__(self, root: Path, redis_url: str, docker_host: str, *, pool: int = 2) -> None:
        policies = root / "policies"
        policies.mkdir()
        (policies / "policy.yaml").write_text(POLICY)
        self.settings = Settings(
            data_dir=root / "data",
            redis_url=redis_url,
            docker_host=docker_host,
            policies_dir=policies,
            poll_s=POLL_S,
            warm_pool=pool,
        )
        self.services = Services(self.settings)
        self.principal, _ = self.services.writer.run(
            lambda unit: self.services.directory.enroll(unit, "default", "soak", (Role.DEVELOPER,))
        )
        self.outcomes: Counter[str] = Counter()
        self.kills = 0
        self.kills_while_starting = 0
        self.ended_by_themselves = 0
        self.log_file = root / "worker.log"
        self._log = self.log_file.open("ab")
        self._environment = {
            **os.environ,
            "CODESDK_DATA_DIR": str(self.settings.data_dir),
            "CODESDK_REDIS_URL": redis_url,
            "CODESDK_DOCKER_HOST": docker_host,
            "CODESDK_POLICIES_DIR": str(policies),
            "CODESDK_POLL_S": str(POLL_S),
            "CODESDK_WARM_POOL": str(pool),
        }
        self._remains = Remains(self.settings)
        self.worker = self._launch()

    # -- the worker ----------------------------------------------------------------------------------------------

    def _launch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "codesdk.worker"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def wait_ready(self, stop: threading.Event | None = None) -> bool:
        """Until the worker that was launched last serves; False where `stop` came first.

        One that ends by itself is followed by another, as a supervisor does, and counted.

        Raises:
            AssertionError: none served in time; with the worker's log.
        """
        deadline = time.monotonic() + READY_S
        while True:
            said = runfile.read(self.settings.data_dir, "worker")
            if said is not None and said["pid"] == self.worker.pid:  # not what a killed one left
                return True
            if stop is not None and stop.is_set():
                return False
            assert time.monotonic() < deadline, f"no worker in {READY_S:.0f} s:\n{evidence.tail(self.log_file)}"
            if self.worker.poll() is not None:
                self.ended_by_themselves += 1
                self.worker = self._launch()
            time.sleep(0.02)

    def kill_worker(self) -> None:
        """As the kernel does when memory is short; another starts at once."""
        self.worker.kill()
        self.worker.wait()
        self.kills += 1
        self.worker = self._launch()

    def keep_killing(self, chance: random.Random, stop: threading.Event) -> None:
        """At random points: one of six while it starts, the others while it serves.

        The time to live counts from its readiness, and a slow machine's worker has as much more of it as its start took
        longer: by the clock alone no worker would ever come to serve there, and the soak would show nothing.
        """
        while not stop.is_set():
            began = time.monotonic()
            if chance.random() < 1 / 6:
                if stop.wait(chance.uniform(0.0, START_S)):
                    return
                self.kills_while_starting += runfile.read(self.settings.data_dir, "worker") is None
            else:
                if not self.wait_ready(stop):
                    return
                slowness = min(MOST_SLOWNESS, max(1.0, (time.monotonic() - began) / START_S))
                # Mostly soon, sometimes late: of fifty sessions some must meet a kill, and some worker must serve many.
                if stop.wait((0.3 + 12.0 * chance.random() ** 2) * slowness):
                    return
            self.kill_worker()

    # -- sessions ------------------------------------------------------------------------------------------------

    def live_one_session(self, chance: random.Random) -> None:
        """Open it, use it, close it; some are closed without waiting for what they asked for."""
        session, token = self._open()
        subject = self.services.directory.subject(token)
        impatient = chance.random() < 0.2
        for _ in range(chance.randint(1, 3)):
            line = chance.choice(
                ("echo x >> file; cat file", "sleep 0.2; echo slept", "head -c 200000 /dev/zero > big")
            )
            asked = self.services.pipeline.submit("workspace.exec", {"command": line}, subject)
            if impatient:
                time.sleep(chance.uniform(0.0, 0.8))
                break
            self.outcomes[self._end(asked.identity.tool_call_id)] += 1
        self.services.sessions.close(session.tenant_id, session.id)
        self.outcomes["sessions"] += 1

    def _open(self) -> Any:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                return self.services.sessions.open(self.principal, NewSession())
            except NoHost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _end(self, call: str) -> str:
        def ended() -> Any:
            at = stored_call(self.services.database, call)
            found = self.services.pipeline.find(at.tenant_id, at.subject.session_id, call)
            return found if isinstance(found, Finished | Denied) else None

        try:
            found = wait_for(ended, f"{call} to end", CALL_S)
        except AssertionError as late:
            said = evidence.of_call(self.services.database, call, self.log_file, self._remains.engine)
            raise AssertionError(f"{late}\n{said}") from late
        if isinstance(found, Denied):
            return "denied"
        return "ok" if not found.result.is_error else (found.result.code or "failed")

    # -- what is left ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the last worker finish what is due, stop it as `codesdk up` does, and sweep."""
        wait_for(
            lambda: not self._states(SandboxState.WANTED, SandboxState.CLOSING, SandboxState.READY), "rows", SETTLE_S
        )
        self.worker.terminate()
        self.worker.wait(120)
        with self.services.database.read() as connection:
            (host,) = connection.execute(text("SELECT id FROM hosts")).scalars()
            alive = store.list_live(connection, host)
        self.swept = self._remains.sweep(alive)

    def _states(self, *states: SandboxState) -> int:
        names = ", ".join(f"'{state.value}'" for state in states)
        with self.services.database.read() as connection:
            # The pool's own are made and given up as long as a worker runs.
            query = f"SELECT count(*) FROM sandboxes WHERE session_id IS NOT NULL AND state IN ({names})"
            return connection.execute(text(query)).scalar_one()

    def left(self) -> dict[str, int]:
        """Everything of it that is still on the machine."""
        with self.services.database.read() as connection:
            rows = connection.execute(text("SELECT count(*) FROM sandboxes WHERE state <> 'gone'")).scalar_one()
            open_calls = connection.execute(
                text("SELECT count(*) FROM tool_calls WHERE state NOT IN ('completed', 'denied')")
            ).scalar_one()
        return {**self._remains.left(), "rows": rows, "calls": open_calls}

    @property
    def containers_made(self) -> int:
        return self._remains.containers_made

    def close(self) -> None:
        if self.worker.poll() is None:
            self.worker.kill()
            self.worker.wait()
        self._remains.close()
        self.services.close()
        self._log.close()
