"""Measures sandboxes: the first result of a warm one, the cost of an idle one, and a burst of creations.

- warm_first_result: opens a session (one transaction, which claims a pooled sandbox), connects to its sandbox and runs
  `true` in it: database and engine, without HTTP and queue;
- burst50: requests 50 sandboxes at once, each timed from the request to ready and attested;
- idle: 200 idle sandboxes: memory of each in its container (its cgroup, without file cache that the kernel can drop)
  and in the process that holds them, and the duration of `true` in one of them.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from codesdk.bootstrap import Services
from codesdk.errors import Fault
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs.wakeups import LocalWakeups
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation.spec import container_name
from codesdk.sandbox.port import ExecRequest, Sandbox, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.runner.execution.execs import KEEP_FREE_S
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.worker.lifecycle.worker import Worker

IDLE = 200
BURST = 50
AT_ONCE = 4
EXECS = 60
WARM = 25
STATS_SAMPLE = 20
FIRST_UID = 266_000
"""Above the uids that installations assign, because limits are counted per uid on the whole host."""
REST_S = KEEP_FREE_S + 2.0
"""Seconds without execs after which a sandbox uses no more memory than an idle one."""
POOL_S = 30.0
PLAIN = (
    "burst50_create_p95_ms",
    "burst50_success_rate",
    "idle_sandbox_mb",
    "idle_sandbox_worker_mb",
    "exec_at_1_idle_ms",
    "exec_at_200_idle_ms",
)
"""Keys of the report that are plain numbers."""
Say = Callable[[str], None]


def spread(values: list[float]) -> dict[str, float]:
    """Median, 95th percentile and count of milliseconds."""
    return {
        "p50": round(statistics.median(values), 3),
        "p95": round(statistics.quantiles(values, n=20, method="inclusive")[-1], 3),
        "n": len(values),
    }


def measure(host: str, image: str, say: Say) -> dict[str, Any]:
    """The report's keys."""
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="codesdk-bench-")))
        say(f"{WARM} sessions on warm sandboxes")
        warm = _warm(host, image, place / "warm")
        many = Many(host, image, place / "many", opened)
        many.fill(1)
        alone = many.exec_ms()
        say(f"{BURST} sandboxes at once")
        burst, failed = many.burst(BURST)
        say(f"{IDLE} idle sandboxes")
        many.fill(IDLE)
        held = many.held()
        time.sleep(REST_S)
        report = {
            "warm_first_result_ms": spread(warm),
            "burst50_create_p95_ms": spread(burst)["p95"],
            "burst50_success_rate": (BURST - failed) / BURST,
            "idle_sandbox_mb": round(many.container_mb(), 2),
            "idle_sandbox_worker_mb": round(many.worker_mb(), 3),
            "exec_at_1_idle_ms": alone,
            "exec_at_200_idle_ms": many.exec_ms(),
            "idle_sandboxes": held,
        }
        say("removing them")
    return report


def _warm(host: str, image: str, place: Path) -> list[float]:
    settings = Settings(data_dir=place, docker_host=host, warm_pool=1)
    times = []
    with ExitStack() as opened:
        services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
        opened.callback(services.close)
        sandboxes = DockerSandboxes(settings.instance_id(), Engine(host), workspaces=settings.workspaces_dir())
        opened.callback(sandboxes.close)
        opened.callback(sandboxes.sweep, ())
        worker = Worker(services, sandboxes, {services.profile.image: image})
        worker.start()
        opened.callback(worker.stop)
        principal, _ = services.writer.run(
            lambda unit: services.directory.enroll(unit, "default", "bench", (Role.DEVELOPER,))
        )
        for _ in range(WARM):
            _wait_pooled(services)
            began = time.perf_counter()
            session, _ = services.sessions.open(principal, NewSession())
            _true(worker.sandbox_registry.ready(session.id), session.id)
            times.append((time.perf_counter() - began) * 1000)
            services.sessions.close(principal.tenant_id, session.id)
    return times


def _wait_pooled(services: Any) -> None:
    until = time.monotonic() + POOL_S
    while time.monotonic() < until:
        with services.database.read() as connection:
            if connection.exec_driver_sql("SELECT 1 FROM sandboxes WHERE state = 'pooled'").first():
                return
        time.sleep(0.02)
    raise TimeoutError("the pool stays empty")


def _true(sandbox: Sandbox, call: str) -> None:
    result = sandbox.exec(ExecRequest(call=call, argv=("true",)), lambda _chunk: None)
    assert result.exit_code == 0, result
    sandbox.acknowledge(call, 1)


class Many:
    """Sandboxes of their own installation."""

    def __init__(self, host: str, image: str, place: Path, opened: ExitStack) -> None:
        self._engine = Engine(host)
        self._instance = f"bench-{os.getpid()}"
        self._image = image
        self._sandboxes = DockerSandboxes(self._instance, self._engine, workspaces=place)
        self._open: list[Sandbox] = []
        self._lock = threading.Lock()
        self._number = 0
        self._rss_before = _rss_mb()
        opened.callback(self._sandboxes.close)
        opened.callback(self._remove)

    def burst(self, count: int) -> tuple[list[float], int]:
        """Return the milliseconds of each that was created, and the number of failures."""
        asked = [self._spec() for _ in range(count)]
        start = threading.Barrier(count)
        times: list[float] = []

        def one(spec: SandboxSpec) -> None:
            start.wait(60)
            began = time.perf_counter()
            try:
                made = self._sandboxes.open(spec)
            except Fault:
                return
            with self._lock:
                times.append((time.perf_counter() - began) * 1000)
                self._open.append(made)

        with ThreadPoolExecutor(count) as threads:
            list(threads.map(one, asked))
        return times, count - len(times)

    def fill(self, count: int) -> None:
        """Open more, a few at a time."""
        missing = [self._spec() for _ in range(count - len(self._open))]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            self._open.extend(threads.map(self._sandboxes.open, missing))

    def held(self) -> int:
        """How many there are."""
        return len(self._open)

    def exec_ms(self) -> float:
        """Return the median of `true` in one of them, with the others idle."""
        time.sleep(6.0)  # connections of idle sandboxes are closed after five seconds
        times = []
        for _ in range(EXECS):
            self._number += 1
            began = time.perf_counter()
            _true(self._open[0], f"call-{self._number}")
            times.append((time.perf_counter() - began) * 1000)
        return round(statistics.median(times), 3)

    def container_mb(self) -> float:
        """Mean of a sample's memory, as `docker stats` counts it."""
        found = []
        for sandbox in self._open[:: max(1, len(self._open) // STATS_SAMPLE)]:
            stats = self._engine.api.stats(container_name(self._instance, sandbox.owner), stream=False, one_shot=True)
            memory = stats["memory_stats"]
            cache = memory["stats"].get("total_inactive_file", memory["stats"].get("inactive_file", 0))
            found.append((memory["usage"] - cache) / 1e6)
        return statistics.fmean(found)

    def worker_mb(self) -> float:
        """Return the growth of this process for each sandbox."""
        return (_rss_mb() - self._rss_before) / len(self._open)

    def _spec(self) -> SandboxSpec:
        self._number += 1
        return SandboxSpec(
            owner=f"bench-{os.getpid()}-{self._number}",
            instance=self._instance,
            profile=Profile(),
            image=self._image,
            tool_uid=FIRST_UID + self._number,
            generation=1,
        )

    def _remove(self) -> None:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._sandboxes.destroy, [sandbox.owner for sandbox in self._open]))
        self._sandboxes.sweep(())


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
