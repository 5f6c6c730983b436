"""Wires a worker from its parts, starts it and stops it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from codesdk.bootstrap import Services
from codesdk.bootstrap.maintenance import lock_path
from codesdk.domain.byte_rate import ByteBuckets
from codesdk.sandbox.egress.secret_files import read_secret, secret_problem
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles.loader import DEFAULT
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.settings import runfile
from codesdk.sources.servers.server_list import ServerReporter
from codesdk.sources.service import SourceService
from codesdk.sources.starters.remote import remote_starter
from codesdk.sources.starters.router import StarterRouter
from codesdk.sources.starters.server_sandboxes import EngineHost, ServerSandboxes
from codesdk.sources.starters.stdio import StdioStarter
from codesdk.storage.timeouts import ANSWER_TIMEOUT_S
from codesdk.storage.writer import Writer
from codesdk.toolcalls.claim import CallClaimer, InFlightCalls
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.run.output_log import FlushTimer
from codesdk.worker.calls.dispatcher import Dispatcher, run_guarded
from codesdk.worker.calls.recovery import Recovery
from codesdk.worker.deferred_approvals.dry_runs import DryRuns
from codesdk.worker.lifecycle.periodic_tasks import PeriodicTask, TaskLoop
from codesdk.worker.lifecycle.watchdog import HEARTBEAT_TIMEOUT_S, POLLER_TIMEOUT_S, WatchedLoop
from codesdk.worker.ownership.heartbeat import Heartbeat
from codesdk.worker.ownership.registration import host_offer, register
from codesdk.worker.ownership.takeover import Takeover, check_no_other_worker, this_process
from codesdk.worker.sandboxes.idle_reaper import IdleReaper
from codesdk.worker.sandboxes.registry import SandboxRegistry
from codesdk.worker.sandboxes.throwaway import ThrowawaySandboxes
from codesdk.worker.sandboxes.warm_pool import WarmPool, pool_specs
from codesdk.worker.workspaces.file_watch import FileWatch
from codesdk.worker.workspaces.workspace_snapshots import SnapshotLoop

_log = logging.getLogger(__name__)

DRAIN_S = 10.0
"""Seconds that a stopping worker waits for running calls. The next worker recovers the rest."""
SWEEP_POLLS = 120
"""Polls between sweeps: at the default poll, a minute."""
ORPHAN_POLLS = 4
"""Polls between searches for orphaned calls: 2 s at the default poll. It takes two searches to find one."""
IDLE_POLLS = 10
"""Polls between checks for idle sandboxes: 5 s at the default poll."""
POLL_STOP_S = 5.0
"""Seconds that a stopping worker waits for the current poll."""
MAINTENANCE_STOP_S = 60.0
"""Seconds that a stopping worker waits for a sandbox that the pool is opening."""
FILE_WATCH_STOP_S = 35.0
"""Seconds that a stopping worker waits for a file watch request, which the sandbox may not answer."""
SHUTDOWN_S = 80.0
"""Seconds from the signal to the forced exit. Less than `stop_grace_period` in compose.yaml."""


class Worker:
    """A worker. Owns the host's sandboxes from `start` to `stop`."""

    def __init__(self, services: Services, sandboxes: Sandboxes, images: dict[str, str], engine: str = "") -> None:
        """`images`: image ids on this engine by name; `engine`: the engine's id, if it has one.

        Raises:
            WorkerRunning, HostTaken, QueueUnavailable: the worker can't start. No lock is kept.
        """
        settings = services.settings
        self._on_stop: Callable[[], object] = lambda: None
        # A pass of the poller may wait for a connection, then for a lock: scale its limit with the database timeout.
        self._slowness = max(1.0, settings.database_answer_s / ANSWER_TIMEOUT_S)
        with ExitStack() as opened:
            this_holder = this_process(settings.instance_id())
            sign = runfile.path_of(settings.data_dir, "worker")
            takeover = Takeover(services.database, settings.host_name, settings.host_lease_s, this_holder, sign=sign)
            opened.callback(takeover.take(settings.data_dir / "worker.lock").close)
            services.wakeups.check()
            self.host = register(
                services.writer,
                services.ids,
                settings.host_name,
                images,
                services.clock.now().timestamp(),
                offer=host_offer(settings, engine),
                holder=this_holder.model_dump_json(),
                check=partial(check_no_other_worker, this_holder=this_holder, lease_s=settings.host_lease_s),
            )
            # A separate writer: heartbeats behind a write that waits for a lock would cost the host its lease.
            heartbeat_writer = Writer(services.database, lock_path(settings, services.database))
            opened.callback(heartbeat_writer.close)
            self.heartbeat = Heartbeat(heartbeat_writer, services.clock, self.host, settings.host_lease_s)
            opened.callback(self.heartbeat.stop)
            self.sandbox_registry = SandboxRegistry(
                sandboxes=sandboxes,
                host=self.host,
                instance=settings.instance_id(),
                database=services.database,
                writer=services.writer,
                log=services.log,
                artifacts=services.artifacts,
                clock=services.clock,
                confirm=self.heartbeat.confirm,
            )
            opened.callback(self.sandbox_registry.close)
            self._warm_pool = WarmPool(
                sandboxes=sandboxes,
                host=self.host,
                instance=settings.instance_id(),
                database=services.database,
                writer=services.writer,
                clock=services.clock,
                ids=services.ids,
                specs=pool_specs(settings.pool_sizes(DEFAULT), services.profiles, images),
            )
            opened.callback(self._drain_pool)
            self._snapshots = SnapshotLoop(
                sandbox_registry=self.sandbox_registry,
                host=self.host,
                artifacts=services.artifacts,
                database=services.database,
                writer=services.writer,
                log=services.log,
                clock=services.clock,
                most_bytes=settings.snapshot_bytes,
                every_s=settings.snapshot_every_s,
            )
            self.sandbox_registry.on_removal(self._snapshots.take_last)
            self._idle_reaper = IdleReaper(
                sandbox_registry=self.sandbox_registry,
                sessions=services.sessions,
                host=self.host,
                database=services.database,
                clock=services.clock,
            )
            self._file_watch = FileWatch(
                sandbox_registry=self.sandbox_registry,
                host=self.host,
                database=services.database,
                log=services.log,
                writer=services.writer,
                clock=services.clock,
            )
            self._sources = SourceService(
                registry=services.registry,
                starter=self._starter(services, sandboxes, images),
                changes=services.source_changes,
                database=services.database,
                clock=services.clock,
                server_reporter=ServerReporter(services.writer, self.host.id, self.host.generation),
                secret_problem=partial(secret_problem, settings.resolved_secrets_dir()),
            )
            opened.callback(self._sources.close)
            self._flush_timer = FlushTimer(services.clock)
            opened.callback(self._flush_timer.close)
            execution = Execution(
                registry=services.registry,
                log=services.log,
                artifacts=services.artifacts,
                writer=services.writer,
                clock=services.clock,
                lost_attempts=services.lost_attempts,
                secret_problem=partial(secret_problem, settings.resolved_secrets_dir()),
                sources=self._sources,
                confirm=self.heartbeat.confirm,
                flush_timer=self._flush_timer,
                output_rate=ByteBuckets(services.log_rate, services.clock),
                decide=CallDecisions(services.bundles, services.approvals).by_policy,
            )
            in_flight = InFlightCalls(settings.worker_threads)
            self._recovery = Recovery(
                host=self.host,
                sandbox_registry=self.sandbox_registry,
                registry=services.registry,
                execution=execution,
                in_flight=in_flight,
                database=services.database,
                writer=services.writer,
            )
            self._claims = CallClaimer(
                registry=services.registry,
                bundles=services.bundles,
                approval_service=services.approvals,
                log=services.log,
                writer=services.writer,
                host=self.host.id,
                generation=self.host.generation,
                quotas=services.quotas,
                execution_environment=sandboxes.execution_environment,
                in_flight=in_flight,
                log_limits=services.log_limits,
            )
            previews = DryRuns(
                host=self.host,
                sandbox_registry=self.sandbox_registry,
                throwaway=ThrowawaySandboxes(
                    sandboxes=sandboxes,
                    host=self.host,
                    instance=settings.instance_id(),
                    writer=services.writer,
                    ids=services.ids,
                ),
                deferred_approvals=services.deferred_approvals,
                database=services.database,
                place=settings.data_dir,
                transfers=execution.transfers_of,
            )
            self.dispatcher = Dispatcher(
                host=self.host,
                sandbox_registry=self.sandbox_registry,
                claims=self._claims,
                execution=execution,
                approval_flow=services.approval_flow,
                deferred_approvals=services.deferred_approvals,
                database=services.database,
                threads=settings.worker_threads,
                previews=previews,
                sources=self._sources,
            )
            opened.callback(lambda: self.dispatcher.drain(DRAIN_S))
            clock, poll_s = services.clock, settings.poll_s
            self._poll_loop = TaskLoop("codesdk-poll", clock, self._poll_tasks(poll_s))
            # A separate thread: the pool and idle sandboxes must not delay calls or sessions.
            self._maintenance_loop = TaskLoop("codesdk-maintenance", clock, self._maintenance_tasks(poll_s))
            # A separate thread: a sandbox that does not answer blocks it.
            self._file_watch_loop = TaskLoop("codesdk-file-watch", clock, self._file_watch_tasks(poll_s))
            # A separate thread: a snapshot takes seconds.
            self._snapshot_loop = TaskLoop("codesdk-snapshots", clock, self._snapshot_tasks(poll_s))
            # A separate thread: work for other hosts must not wait for this host's engine.
            self._lost_host_loop = TaskLoop(
                "codesdk-lost-hosts", clock, self._lost_host_tasks(services.lost_hosts, poll_s)
            )
            self._opened = opened.pop_all()

    def start(self) -> None:
        """Clean up after earlier workers, recover their running calls, then serve."""
        self.heartbeat.start()
        self.sandbox_registry.sweep()
        run_guarded(self._sources.tend)  # servers of a worker that was killed
        self._flush_timer.start()
        taken = self._recovery.take_up(self.dispatcher.start)
        if taken:
            _log.info("recovering %d calls of an earlier worker", taken)
        self._claims.take_up()
        for each in (
            self._poll_loop,
            self._lost_host_loop,
            self._maintenance_loop,
            self._file_watch_loop,
            self._snapshot_loop,
        ):
            each.start()

    def watched_loops(self) -> tuple[WatchedLoop, ...]:
        """The loops that the watchdog checks from `start` to `stop`."""
        return (
            WatchedLoop(
                "poller",
                lambda: self._poll_loop.turns,
                POLLER_TIMEOUT_S * self._slowness,
                lambda: self.heartbeat.is_recent,
            ),
            WatchedLoop("heartbeat", lambda: self.heartbeat.turns, HEARTBEAT_TIMEOUT_S),
        )

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Run `callback` once the worker has stopped claiming: it withdraws the announcement that the worker serves."""
        self._on_stop = callback

    def stop(self) -> None:
        """Stop claiming, wait `DRAIN_S` for running calls, hand back the rest, release everything. Sandboxes live on."""
        self.dispatcher.stop_claiming()  # first: the steps below may block
        self._on_stop()  # only after claiming has stopped
        self.heartbeat.leave()  # from here on placement prefers other hosts
        for each in (self._lost_host_loop, self._maintenance_loop, self._file_watch_loop, self._snapshot_loop):
            each.request_stop()
        # The poller runs until the drain is over: it forwards cancels.
        self.dispatcher.drain(DRAIN_S)
        self._poll_loop.join(POLL_STOP_S)
        self._lost_host_loop.join(POLL_STOP_S)
        self._maintenance_loop.join(MAINTENANCE_STOP_S)
        self._file_watch_loop.join(FILE_WATCH_STOP_S)
        self._snapshot_loop.join(POLL_STOP_S)  # an interrupted snapshot leaves nothing; the next worker retakes it
        self._opened.close()

    def _starter(self, services: Services, sandboxes: Sandboxes, images: dict[str, str]) -> StarterRouter:
        settings = services.settings
        housing = ServerSandboxes(
            sandboxes=sandboxes,
            place=EngineHost(self.host.id, self.host.generation, settings.instance_id(), images),
            profiles=services.profiles,
            database=services.database,
            writer=services.writer,
            clock=services.clock,
            ids=services.ids,
            quotas=services.quotas,
        )
        secrets = partial(read_secret, settings.resolved_secrets_dir())
        elsewhere = remote_starter(settings.source_networks, secrets, services.clock)
        return StarterRouter(StdioStarter(housing, services.clock, services.ids), elsewhere)

    def _poll_tasks(self, poll_s: float) -> tuple[PeriodicTask, ...]:
        """Finds work without a wake-up. Only hands it to threads, so a pass is short."""
        return (
            PeriodicTask(
                name="look for calls, cancels, sessions and expiries",
                every_s=poll_s,
                work=self.dispatcher.poll,
                on_failure="wake-ups still come, and the next poll looks at all of it",
            ),
            PeriodicTask(
                name="look for orphaned calls",
                every_s=ORPHAN_POLLS * poll_s,
                work=lambda: self._recovery.recover_orphaned(self.dispatcher.start),
                on_failure="a call whose claim was not answered waits for the next",
                at_once=False,
            ),
            PeriodicTask(
                name="sweep",
                every_s=SWEEP_POLLS * poll_s,
                work=self.dispatcher.sweep,
                on_failure="containers without an owner stay until the next",
                at_once=False,  # the start has swept
            ),
        )

    def _maintenance_tasks(self, poll_s: float) -> tuple[PeriodicTask, ...]:
        """Tasks that wait for the engine."""
        return (
            PeriodicTask(
                name="keep the pool full",
                every_s=poll_s,
                work=self._warm_pool.tend,
                on_failure="sessions whose sandbox is not warm wait for one that is made",
            ),
            PeriodicTask(
                name="look at idle sandboxes",
                every_s=IDLE_POLLS * poll_s,
                work=self._idle_reaper.look,
                on_failure="they are paused and closed later than their profile says",
                at_once=False,
            ),
            PeriodicTask(
                name="look after MCP servers",
                every_s=IDLE_POLLS * poll_s,
                work=self._sources.tend,
                on_failure="those that are idle, or whose session is closed, run on until the next",
                at_once=False,
            ),
            PeriodicTask(
                name="look again at tenants that had no call to start",
                every_s=IDLE_POLLS * poll_s,
                work=self._claims.look_again,
                on_failure="a raised limit is seen at the end of one of their calls",
                at_once=False,
            ),
        )

    def _file_watch_tasks(self, poll_s: float) -> tuple[PeriodicTask, ...]:
        """Tasks that query sandboxes one by one."""
        return (
            PeriodicTask(
                name="look for changed files",
                every_s=poll_s,
                work=self._file_watch.look,
                on_failure="they wait in their sandboxes, and are logged later or counted as lost",
            ),
        )

    def _snapshot_tasks(self, poll_s: float) -> tuple[PeriodicTask, ...]:
        """Snapshots of workspaces, for sessions whose host is lost."""
        return (
            PeriodicTask(
                name="take snapshots of workspaces",
                every_s=IDLE_POLLS * poll_s,
                work=self._snapshots.look,
                on_failure="a session that is opened from one of these starts from an older one",
            ),
        )

    @staticmethod
    def _lost_host_tasks(lost_hosts: LostHosts, poll_s: float) -> tuple[PeriodicTask, ...]:
        """Tasks for other hosts."""
        return (
            PeriodicTask(
                name="look for silent hosts",
                every_s=IDLE_POLLS * poll_s,
                work=lost_hosts.tend,
                on_failure="the API and other workers look as well",
            ),
        )

    def _drain_pool(self) -> None:
        if not self.heartbeat.is_fenced:  # otherwise they belong to a newer worker
            run_guarded(self._warm_pool.close)
