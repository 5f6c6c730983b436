"""What a worker is made of, from its start to its stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from codesdk.bootstrap import Services
from codesdk.bootstrap.record import lock_path
from codesdk.sandbox.egress.secret_files import problem_of, read_secret
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles import DEFAULT
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.settings import runfile
from codesdk.sources.desk import SourceDesk
from codesdk.sources.housing import Housing, Place
from codesdk.sources.remote import remote_starter
from codesdk.sources.roster import OwnRoster
from codesdk.sources.starting import BothStarters
from codesdk.sources.stdio import StdioStarter
from codesdk.storage.patience import ANSWER_S
from codesdk.storage.writer import Writer
from codesdk.toolcalls.claim import Claims
from codesdk.toolcalls.execution import Execution
from codesdk.worker.copies import Copies
from codesdk.worker.dispatcher import Dispatcher, guarded
from codesdk.worker.hand import Hand
from codesdk.worker.heart import POLLER_TURN_S, PULSE_TURN_S, Part
from codesdk.worker.host import offer_of, register
from codesdk.worker.pool import Pool, sorts_of
from codesdk.worker.previews import Previews
from codesdk.worker.pulse import Pulse
from codesdk.worker.recovery import Recovery
from codesdk.worker.rest import Rest
from codesdk.worker.rooms import Rooms
from codesdk.worker.rounds import Duty, Round
from codesdk.worker.snapshots import Snapshots
from codesdk.worker.succession import Succession, check_alone, this_process
from codesdk.worker.watching import Watching

_log = logging.getLogger(__name__)

DRAIN_S = 10.0
"""Seconds that a stopping worker gives to running calls. What is left is handed back: the next worker takes it up."""
SWEEP_POLLS = 120
"""Polls between sweeps: at the default poll, a minute."""
STRAY_POLLS = 4
"""Polls between looks for calls that run by their rows alone: at the default poll two seconds; two looks find one."""
REST_POLLS = 10
"""Polls between looks for idle sandboxes: at the default poll, five seconds."""
POLLER_S = 5.0
"""Seconds that a stopping worker waits for a look that is under way."""
KEEPER_S = 60.0
"""Seconds that a stopping worker waits for a sandbox which its pool is just making."""
WATCHER_S = 35.0
"""Seconds that a stopping worker waits for a sandbox that is just asked for changed files, and may not answer."""
LEAVE_S = 80.0
"""Seconds from the signal until the process is gone, whatever hangs: less than Compose's `stop_grace_period`."""


class Worker:
    """One worker: owns the host's sandboxes from `start` to `stop`."""

    def __init__(self, services: Services, sandboxes: Sandboxes, images: dict[str, str], engine: str = "") -> None:
        """`images`: image name -> image id on this engine; `engine`: its own id, where it has one.

        Raises:
            WorkerRunning, HostTaken, QueueUnavailable: nothing is held.
        """
        settings = services.settings
        self._withdraw: Callable[[], object] = lambda: None
        # A turn of the poller may wait for a connection, and then for a lock: no hang where the database is given longer.
        self._slowness = max(1.0, settings.database_answer_s / ANSWER_S)
        with ExitStack() as opened:
            me = this_process(settings.instance_id())
            sign = runfile.path_of(settings.data_dir, "worker")
            before = Succession(services.database, settings.host_name, settings.host_lease_s, me, sign=sign)
            opened.callback(before.take(settings.data_dir / "worker.lock").close)
            services.wakeups.check()
            self.host = register(
                services.writer,
                services.ids,
                settings.host_name,
                images,
                services.clock.now().timestamp(),
                offer=offer_of(settings, engine),
                holder=me.model_dump_json(),
                check=partial(check_alone, me=me, lease_s=settings.host_lease_s),
            )
            # Its own: a heartbeat must not stand behind changes that wait for somebody's lock, or its host would be lost.
            beats = Writer(services.database, lock_path(settings, services.database))
            opened.callback(beats.close)
            self.pulse = Pulse(beats, services.clock, self.host, settings.host_lease_s)
            opened.callback(self.pulse.stop)
            self.rooms = Rooms(
                sandboxes=sandboxes,
                host=self.host,
                instance=settings.instance_id(),
                database=services.database,
                writer=services.writer,
                log=services.log,
                artifacts=services.artifacts,
                clock=services.clock,
                confirm=self.pulse.confirm,
            )
            opened.callback(self.rooms.close)
            self._pool = Pool(
                sandboxes=sandboxes,
                host=self.host,
                instance=settings.instance_id(),
                database=services.database,
                writer=services.writer,
                clock=services.clock,
                ids=services.ids,
                sorts=sorts_of(settings.pool_sizes(DEFAULT), services.profiles, images),
            )
            opened.callback(self._drain_pool)
            self._snapshots = Snapshots(
                rooms=self.rooms,
                host=self.host,
                artifacts=services.artifacts,
                database=services.database,
                writer=services.writer,
                log=services.log,
                clock=services.clock,
                most_bytes=settings.snapshot_bytes,
                every_s=settings.snapshot_every_s,
            )
            self.rooms.before_removal(self._snapshots.farewell)
            self._rest = Rest(
                rooms=self.rooms,
                sessions=services.sessions,
                host=self.host,
                database=services.database,
                clock=services.clock,
            )
            self._watching = Watching(
                rooms=self.rooms,
                host=self.host,
                database=services.database,
                log=services.log,
                writer=services.writer,
                clock=services.clock,
            )
            self._sources = SourceDesk(
                registry=services.registry,
                starter=self._starter(services, sandboxes, images),
                changes=services.source_changes,
                database=services.database,
                clock=services.clock,
                roster=OwnRoster(services.writer, self.host.id, self.host.generation),
                secret_problem=partial(problem_of, settings.resolved_secrets_dir()),
            )
            opened.callback(self._sources.close)
            execution = Execution(
                registry=services.registry,
                log=services.log,
                artifacts=services.artifacts,
                writer=services.writer,
                clock=services.clock,
                losses=services.losses,
                secret_problem=partial(problem_of, settings.resolved_secrets_dir()),
                sources=self._sources,
                confirm=self.pulse.confirm,
            )
            hand = Hand()
            self._recovery = Recovery(
                host=self.host,
                rooms=self.rooms,
                registry=services.registry,
                execution=execution,
                hand=hand,
                database=services.database,
                writer=services.writer,
            )
            self._claims = Claims(
                registry=services.registry,
                bundles=services.bundles,
                desk=services.desk,
                log=services.log,
                writer=services.writer,
                host=self.host.id,
                generation=self.host.generation,
                quotas=services.quotas,
                surroundings=sandboxes.surroundings,
                most_of_tenant=settings.worker_threads,
            )
            previews = Previews(
                host=self.host,
                rooms=self.rooms,
                copies=Copies(
                    sandboxes=sandboxes,
                    host=self.host,
                    instance=settings.instance_id(),
                    writer=services.writer,
                    ids=services.ids,
                ),
                pipeline=services.pipeline,
                database=services.database,
                place=settings.data_dir,
            )
            self.dispatcher = Dispatcher(
                host=self.host,
                rooms=self.rooms,
                claims=self._claims,
                execution=execution,
                hand=hand,
                pipeline=services.pipeline,
                database=services.database,
                threads=settings.worker_threads,
                previews=previews,
                sources=self._sources,
            )
            opened.callback(lambda: self.dispatcher.drain(DRAIN_S))
            clock, poll_s = services.clock, settings.poll_s
            self._poller = Round("codesdk-poll", clock, self._of_poller(poll_s))
            # A thread of its own: the pool and idle sandboxes must hold up neither calls nor sessions.
            self._keeper = Round("codesdk-keeper", clock, self._of_keeper(poll_s))
            # Another: a sandbox that does not answer must hold up none of these.
            self._watcher = Round("codesdk-watch", clock, self._of_watcher(poll_s))
            # Another: each snapshot holds its session's calls up for seconds.
            self._photographer = Round("codesdk-snapshots", clock, self._of_photographer(poll_s))
            # Another: what is done for other hosts must not wait for this one's engine.
            self._neighbour = Round("codesdk-hosts", clock, self._of_neighbour(services.lost_hosts, poll_s))
            self._opened = opened.pop_all()

    def start(self) -> None:
        """Clean up after earlier workers, take up what they ran, then serve."""
        self.pulse.start()
        self.rooms.sweep()
        guarded(self._sources.tend)  # servers of a worker that was killed
        taken = self._recovery.take_up(self.dispatcher.start)
        if taken:
            _log.info("took up %d calls of an earlier worker", taken)
        self._claims.take_up()
        for each in (self._poller, self._neighbour, self._keeper, self._watcher, self._photographer):
            each.start()

    def parts(self) -> tuple[Part, ...]:
        """What must come round, from `start` to `stop`."""
        return (
            Part("poller", lambda: self._poller.turns, POLLER_TURN_S * self._slowness, lambda: self.pulse.is_young),
            Part("heartbeat", lambda: self.pulse.turns, PULSE_TURN_S),
        )

    def announced(self, withdraw: Callable[[], object]) -> None:
        """Others were told that it serves; `withdraw` takes that back when it stops."""
        self._withdraw = withdraw

    def stop(self) -> None:
        """Take no call any more, give those that run their time, hand the rest back, let go. Sandboxes live on."""
        self.dispatcher.rest()  # before anything that may have to wait
        self._withdraw()  # whoever sees that it serves no more sees a worker that claims nothing
        self.pulse.leave()  # others are chosen from here on
        for each in (self._neighbour, self._keeper, self._watcher, self._photographer):
            each.tell()
        # The poller goes on until the calls have had their time: who cancels one meanwhile must be heard.
        self.dispatcher.drain(DRAIN_S)
        self._poller.end(POLLER_S)
        self._neighbour.end(POLLER_S)
        self._keeper.end(KEEPER_S)
        self._watcher.end(WATCHER_S)
        self._photographer.end(POLLER_S)  # one that is cut off keeps nothing, and the next worker takes it again
        self._opened.close()

    def _starter(self, services: Services, sandboxes: Sandboxes, images: dict[str, str]) -> BothStarters:
        settings = services.settings
        housing = Housing(
            sandboxes=sandboxes,
            place=Place(self.host.id, self.host.generation, settings.instance_id(), images),
            profiles=services.profiles,
            database=services.database,
            writer=services.writer,
            clock=services.clock,
            ids=services.ids,
            quotas=services.quotas,
        )
        secrets = partial(read_secret, settings.resolved_secrets_dir())
        elsewhere = remote_starter(settings.source_networks, secrets, services.clock)
        return BothStarters(StdioStarter(housing, services.clock, services.ids), elsewhere)

    def _of_poller(self, poll_s: float) -> tuple[Duty, ...]:
        """What finds work that no wake-up told of. It only hands over to threads, so it never takes long."""
        return (
            Duty(
                name="look for calls, cancels, sessions and expiries",
                every_s=poll_s,
                work=self.dispatcher.poll,
                otherwise="wake-ups still come, and the next poll looks at all of it",
            ),
            Duty(
                name="look for running calls that nobody has",
                every_s=STRAY_POLLS * poll_s,
                work=lambda: self._recovery.look_for_strays(self.dispatcher.start),
                otherwise="a call whose claim was not answered waits for the next",
                at_once=False,
            ),
            Duty(
                name="sweep",
                every_s=SWEEP_POLLS * poll_s,
                work=self.dispatcher.sweep,
                otherwise="containers without an owner stay until the next",
                at_once=False,  # the start has swept
            ),
        )

    def _of_keeper(self, poll_s: float) -> tuple[Duty, ...]:
        """What waits for the engine, and may take as long as the engine does."""
        return (
            Duty(
                name="keep the pool full",
                every_s=poll_s,
                work=self._pool.tend,
                otherwise="sessions whose sandbox is not warm wait for one that is made",
            ),
            Duty(
                name="look at idle sandboxes",
                every_s=REST_POLLS * poll_s,
                work=self._rest.look,
                otherwise="they are paused and closed later than their profile says",
                at_once=False,
            ),
            Duty(
                name="look after MCP servers",
                every_s=REST_POLLS * poll_s,
                work=self._sources.tend,
                otherwise="those that are idle, or whose session is closed, run on until the next",
                at_once=False,
            ),
            Duty(
                name="look again at tenants that had no call to start",
                every_s=REST_POLLS * poll_s,
                work=self._claims.look_again,
                otherwise="a raised limit is seen at the end of one of their calls",
                at_once=False,
            ),
        )

    def _of_watcher(self, poll_s: float) -> tuple[Duty, ...]:
        """What asks the sandboxes themselves, one after the other."""
        return (
            Duty(
                name="look for changed files",
                every_s=poll_s,
                work=self._watching.look,
                otherwise="they wait in their sandboxes, and are told later or counted as lost",
            ),
        )

    def _of_photographer(self, poll_s: float) -> tuple[Duty, ...]:
        """What keeps workspaces for the day when their host is gone."""
        return (
            Duty(
                name="take snapshots of workspaces",
                every_s=REST_POLLS * poll_s,
                work=self._snapshots.look,
                otherwise="a session that is opened from one of these starts from an older one",
            ),
        )

    @staticmethod
    def _of_neighbour(lost_hosts: LostHosts, poll_s: float) -> tuple[Duty, ...]:
        """What is done for other hosts."""
        return (
            Duty(
                name="look for silent hosts",
                every_s=REST_POLLS * poll_s,
                work=lost_hosts.tend,
                otherwise="the API and other workers look as well",
            ),
        )

    def _drain_pool(self) -> None:
        if not self.pulse.is_over:  # then they are a newer worker's
            guarded(self._pool.close)
