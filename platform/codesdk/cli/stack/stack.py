"""Starts, supervises and stops the whole product on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Self
from urllib.parse import urlsplit

from codesdk.bootstrap import Services
from codesdk.cli.api_client import ApiClient
from codesdk.cli.stack.instance_lock import check_port, lock_data_dir
from codesdk.cli.stack.managed_process import ManagedProcess
from codesdk.cli.stack.operator_key import ensure_operator
from codesdk.cli.stack.shutdown import close_sessions, remove_leftover_sandboxes
from codesdk.cli.stack.supervisor import HUNG_S, Supervisor
from codesdk.domain.clock import SystemClock
from codesdk.errors import Fault
from codesdk.eventlog.hints import LocalHints
from codesdk.policy import ActiveBundles
from codesdk.provision.engines import docker_engine
from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.provision.images.sandbox_images import ImageStore
from codesdk.provision.servers import redis_server
from codesdk.provision.servers.redis_server import RedisMissing
from codesdk.provision.system.command import ProgressCallback
from codesdk.registry import ActiveRegistry
from codesdk.sandbox.profiles.loader import DEFAULT, load_profiles
from codesdk.settings import Settings

START_S = 60.0
"""Seconds until both processes must be ready: under two on an idle machine, ten with a cold import cache."""
GRACE_S = 15.0
"""Seconds for a process to stop: the worker drains running calls for ten."""
MIN_HUNG_S = 5.0
"""Minimum seconds without a heartbeat before a worker counts as hung, even with a short lease."""
DEPENDENCY_CHECK_S = 5.0
"""Seconds between checks of engine and Redis."""


class Stack:
    """API, worker and their dependencies. Entering starts them; leaving stops everything that entering started."""

    def __init__(
        self, settings: Settings, progress: ProgressCallback, profile: str = DEFAULT, *, keep: bool = False
    ) -> None:
        """`profile`: its image is built or checked before anything starts. `keep`: leave sessions and sandboxes."""
        self._keep = keep
        self.settings = settings
        self._profile = profile
        self._progress = progress
        self._opened = ExitStack()
        self._api: ManagedProcess
        self._worker: ManagedProcess
        self._services: Services
        self.daemon: ApiClient
        self.key: str
        """The operator's API key."""

    def __enter__(self) -> Self:
        """Start everything in order. On failure, stops what was started.

        Raises:
            Fault: why it could not start.
        """
        with ExitStack() as opened:
            self._start(opened)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def is_valid(self, token: str) -> bool:
        """Whether a session's token is valid, and its session open."""
        try:
            self._services.directory.subject(token)
        except Fault:
            return False
        return True

    def watch(self, warn: ProgressCallback, stopping: Callable[[float], bool]) -> None:
        """Supervise until `stopping(seconds)`, which waits that long, returns True. Main thread only."""
        # The worker sends a heartbeat each second; once its lease has expired nobody waits for it.
        hung_s = max(self.settings.host_lease_s or HUNG_S, MIN_HUNG_S)
        supervisor = Supervisor([self._api, self._worker], warn, hung_s)
        next_check = time.monotonic() + DEPENDENCY_CHECK_S
        was_healthy: dict[str, bool] = {}
        while not stopping(0.1):
            supervisor.check(time.monotonic())
            if time.monotonic() >= next_check:
                self._check_dependencies(warn, was_healthy)
                next_check = time.monotonic() + DEPENDENCY_CHECK_S

    def failure_reason(self) -> str | None:
        """Return why one of our processes has ended; None while both run."""
        for child in (self._api, self._worker):
            if (code := child.ended) is not None:
                return f"The {child.name} ended with {code}: {child.output_tail()}"
        return None

    def _start(self, opened: ExitStack) -> None:
        self._check_config_files()
        opened.enter_context(lock_data_dir(self.settings))
        check_port(self.settings.host, self.settings.port)
        self._start_dependencies(opened)
        # Local hints: this process follows no log, and ending a Redis subscription takes a second.
        self._services = Services(self.settings, hints=LocalHints())
        opened.callback(self._services.close)
        self.key = ensure_operator(self._services, self._progress)
        self._start_processes(opened)
        url = self._wait_ready()
        self.daemon = opened.enter_context(ApiClient(url, self.key))

    def _check_config_files(self) -> None:
        """Load profiles, registry and policies once, so that an invalid file is reported before anything starts."""
        settings, profiles = self.settings, load_profiles(self.settings.profiles_dir)
        profiles.named(self._profile)
        registry = ActiveRegistry(settings.registry_dir, tenants=settings.tenant_tools(), profiles=profiles.bounds())
        ActiveBundles(
            settings.policies_dir,
            registry.known_tools(),
            SystemClock(),
            tenants=settings.tenant_policies(),
            enforce_tests=settings.enforces_policy_tests(),
        )

    def _start_dependencies(self, opened: ExitStack) -> None:
        changes = {} if self.settings.is_local else self._start_engine(opened)
        if self.settings.redis_url:
            check_redis(self.settings)
        else:
            redis = redis_server.ensure(self.settings.data_dir, self._progress)
            opened.callback(self._stop_and_report, redis.stop, "Redis")
            changes["redis_url"] = redis.url
        self.settings = self.settings.model_copy(update=changes)

    def _start_engine(self, opened: ExitStack) -> dict[str, str]:
        engine = docker_engine.ensure(self._progress, docker_host=self.settings.docker_host)
        opened.callback(self._stop_and_report, engine.stop, "the Docker engine that was started here")
        self._build_images(engine)
        return {"docker_host": engine.host}

    def _build_images(self, engine: docker_engine.Engine) -> None:
        profiles = load_profiles(self.settings.profiles_dir)
        image_store = ImageStore(self.settings, engine)
        for name in dict.fromkeys(profiles.named(chosen).image for chosen in (DEFAULT, self._profile)):
            image_store.provide(name, self._progress)

    def _start_processes(self, opened: ExitStack) -> None:
        self._progress(f"Starting API and worker (logs in {self.settings.data_dir / 'log'})")
        self._worker = ManagedProcess("worker", "codesdk.worker", self.settings, heartbeats=True)
        self._api = ManagedProcess("api", "codesdk.api", self.settings)
        instance = self.settings.instance_id()
        if not self._keep:
            opened.callback(lambda: remove_leftover_sandboxes(self.settings, instance, self._progress))
        opened.callback(lambda: self._worker.stop(GRACE_S))
        # Twice: while the API runs, waiting clients get their calls' outcomes; after it, no new session can come. The worker
        # removes the sandboxes.
        close = partial(close_sessions, self._services, self._progress, lambda: self._worker.ended is None)
        if not self._keep:
            opened.callback(close)
        opened.callback(lambda: self._api.stop(GRACE_S))
        if not self._keep:
            opened.callback(close)
        self._worker.start()
        self._api.start()

    def _wait_ready(self) -> str:
        until = time.monotonic() + START_S
        self._worker.wait_ready(until)
        url = str(self._api.wait_ready(until)["url"])
        self._pin_port(url)
        return url

    def _pin_port(self, url: str) -> None:
        # After a crash the API must return on the same port, even if that was chosen automatically.
        self.settings = self.settings.model_copy(update={"port": urlsplit(url).port})
        self._api.use(self.settings)
        self._worker.use(self.settings)

    def _check_dependencies(self, warn: ProgressCallback, was_healthy: dict[str, bool]) -> None:
        for name, healthy, restart in (
            ("Redis", redis_server.answers(self.settings.resolved_redis_url()), self._restart_redis),
            ("The Docker engine", self._engine_answers(), None),
        ):
            if healthy and not was_healthy.get(name, True):
                warn(f"{name} answers again.")
            elif not healthy and was_healthy.get(name, True):
                warn(f"{name} does not answer; until it does, calls wait, or fail with the reason.")
            was_healthy[name] = healthy
            if not healthy and restart is not None:
                restart(warn)

    def _engine_answers(self) -> bool:
        return self.settings.is_local or docker_answers(self.settings.docker_host)

    def _restart_redis(self, warn: ProgressCallback) -> None:
        if not self.settings.resolved_redis_url().startswith(f"unix://{self.settings.data_dir}"):
            return  # we may not start this one
        try:
            server = redis_server.ensure(self.settings.data_dir, warn)
        except Fault as fault:
            warn(str(fault))
            return
        self._opened.callback(self._stop_and_report, server.stop, "Redis")

    def _stop_and_report(self, stop: Callable[[], bool], what: str) -> None:
        try:
            if stop():
                self._progress(f"Stopped {what}")
        except Fault as fault:
            self._progress(f"{what} was not stopped: {fault}")


def docker_answers(host: str) -> bool:
    """Whether an engine answers at this address."""
    return ping(host).answer is EndpointState.ENGINE


def check_redis(settings: Settings) -> None:
    """Check that the configured Redis server answers.

    Raises:
        RedisMissing: it doesn't.
    """
    url = settings.redis_url
    if not redis_server.answers(url):
        raise RedisMissing(
            f"No Redis server answers at {redis_server.without_password(url)} (CODESDK_REDIS_URL).",
            advice="Start it, or unset CODESDK_REDIS_URL so that CodeSDK starts its own.",
        )
