"""Turns wake-ups and polls into work on threads: claims, cancels, sandboxes, expiries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import IdKind, is_id
from codesdk.errors import Fault
from codesdk.sandbox.port import Sandbox
from codesdk.storage.database import Database
from codesdk.toolcalls.claim import Claims
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.toolcalls.run.sources import NoSources, Sources
from codesdk.worker.calls.in_flight import InFlightCalls
from codesdk.worker.deferred_approvals.dry_runs import DryRuns
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes import reconciliation
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

SANDBOX_THREADS = reconciliation.REMOVAL_PASSES + 1
"""Threads that open and remove sandboxes: an engine on two cores removes 7 a second for four, and 2 for two."""
FINGERPRINT_THREADS = 4
"""Sandboxes that are asked at once for the files which calls name."""


class CoalescedJob:
    """A look at the rows: one that has not begun yet sees all that asked for another. Safe to use from any thread.

    Each of a thousand questions asks its worker to look. In a pool that took all of these looks, a cancel would wait
    for a thousand that find nothing.
    """

    def __init__(
        self, submit: Callable[[Callable[[], None]], object], work: Callable[[], None], *, most: int = 1
    ) -> None:
        """`submit` has it run on some thread, later; `most`: how many wait for one at once."""
        self._submit = submit
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting = 0

    def ask(self) -> None:
        """Have the work done once more, from a moment after now."""
        with self._lock:
            if self._waiting >= self._most:
                return
            self._waiting += 1
        try:
            self._submit(self._run)
        except BaseException:
            self._dequeue()
            raise

    def _run(self) -> None:
        self._dequeue()  # first: who asks from here on may have come too late for this look
        self._work()

    def _dequeue(self) -> None:
        with self._lock:
            self._waiting -= 1


class Dispatcher:
    """The worker's heart. A wake-up says only "look"; what there is to do is read from the rows."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        sandbox_registry: SandboxRegistry,
        claims: Claims,
        execution: Execution,
        in_flight: InFlightCalls,
        pipeline: Pipeline,
        database: Database,
        threads: int,
        previews: DryRuns | None = None,
        sources: Sources | None = None,
        pool: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        """`threads`: calls of one tenant that run at once, as the claims are told too; some more stand ready for others'.

        `previews`: what tries calls before people are asked.

        `sources`: other people's servers. `pool` makes what runs the work, of that many threads with that name.
        """
        self._previews = previews
        self._sources = sources or NoSources()
        self._host = host
        self._in_flight = in_flight
        self._sandbox_registry = sandbox_registry
        self._claims = claims
        self._execution = execution
        self._pipeline = pipeline
        self._database = database
        width = threads + spare_threads(threads)
        self._calls = pool(width, "codesdk-call")
        # Sandboxes are opened and removed on a pool of their own: a slow engine must not hold up calls.
        self._sandbox_pool = pool(SANDBOX_THREADS, "codesdk-sandbox")
        # Cancels and expiries wait for neither: a person who cancels must be heard while an engine hangs.
        self._control = pool(1, "codesdk-control")
        # A look may have to open a sandbox, and hash much; a cancel must not wait for that.
        self._fingerprint_pool = pool(FINGERPRINT_THREADS, "codesdk-fingerprint")
        self._fingerprints = FileFingerprints(
            host=host, sandbox_registry=sandbox_registry, pipeline=pipeline, database=database
        )
        # Each cancel has a thread: a sandbox that does not answer takes half a minute, and the others' must not wait.
        self._cancels = pool(width, "codesdk-cancel")
        self._cancelling: set[CallIdentity] = set()
        self._draining = threading.Event()
        self._serve_job = self._coalesced(self._calls, self._serve_woken, most=width)
        self._cancel_job = self._coalesced(self._control, self._forward_cancels)
        self._expiry_job = self._coalesced(self._control, self._expire)
        self._fingerprint_job = self._coalesced(self._control, self._look)
        self._reconcile_job = self._coalesced(self._sandbox_pool, self._sandbox_registry.reconcile)

    def wake(self, subject: str) -> None:
        """Look at what `subject` may have brought: a call to run, or a session with a sandbox or a cancel to see to."""
        if not is_id(subject, IdKind.SESSION):
            self._serve_job.ask()
            return
        self._cancel_job.ask()
        if not self._draining.is_set():
            self._reconcile_job.ask()
            self._fingerprint_job.ask()

    def start(self, work: Callable[[], None]) -> None:
        """Run something on the calls' threads."""
        self._submit(self._calls, work)

    def poll(self) -> None:
        """Find what no wake-up told of. While it drains, those are cancels only."""
        self._cancel_job.ask()
        if not self._draining.is_set():
            self._submit(self._calls, self._serve)
            self._reconcile_job.ask()
            self._expiry_job.ask()
            self._fingerprint_job.ask()

    def sweep(self) -> None:
        """Remove what has no owner."""
        if not self._draining.is_set():
            self._submit(self._sandbox_pool, self._sandbox_registry.sweep)

    def stop_claiming(self) -> None:
        """Begin nothing more; what runs goes on."""
        self._draining.set()
        self._fingerprints.stop()

    def drain(self, timeout_s: float) -> None:
        """Start nothing more; give what runs at most that long, and its cancels are heard. What is left is handed back.

        To hand a call back is to let go of it as it is: its row runs, its exec goes on under its runner, and nobody but
        the next worker, whose generation is higher, can end it.
        """
        self.stop_claiming()
        # A call that another worker left and that nobody here has begun to take up is not begun any more.
        self._calls.shutdown(wait=False, cancel_futures=True)
        waiter = threading.Thread(target=self._calls.shutdown, name="codesdk-drain", daemon=True)
        waiter.start()
        waiter.join(timeout_s)
        self._execution.abandon()
        if self._previews is not None:
            self._previews.close()
        for pool in (self._sandbox_pool, self._control, self._fingerprint_pool):
            pool.shutdown(wait=True, cancel_futures=True)
        self._cancels.shutdown(wait=False, cancel_futures=True)  # what hangs ends with its connection

    def _coalesced(self, pool: Executor, work: Callable[[], None], *, most: int = 1) -> CoalescedJob:
        return CoalescedJob(partial(self._submit, pool), work, most=most)

    def _submit(self, pool: Executor, work: Callable[[], None]) -> None:
        try:
            pool.submit(run_guarded, work)
        except RuntimeError:
            if not self._draining.is_set():
                raise
            # The pool is shut: what was due is a row, and the next worker's.

    def _serve_woken(self) -> None:
        # The wake-up's own call first, without a look: it is nearly always there.
        if not self._draining.is_set() and self._serve_one():
            self._serve()

    def _serve(self) -> None:
        while not self._draining.is_set() and self._claims.any() and self._serve_one():
            pass

    def _serve_one(self) -> bool:
        with self._in_flight.claiming():
            taken = self._claims.take()
            if isinstance(taken, ClaimedCall):
                self._in_flight.add(taken.stored.identity)
        if isinstance(taken, ClaimedCall):
            try:
                self._run(taken)
            finally:
                self._in_flight.discard(taken.stored.identity)
                self._claims.leave(taken)
        return taken is not None

    def _run(self, claimed: ClaimedCall) -> None:
        session = claimed.stored.subject.session_id
        self._execution.run(
            claimed, partial(self._sandbox_registry.begin, session), partial(self._sandbox_registry.lose, session)
        )

    def _look(self) -> None:
        if not self._draining.is_set():
            self._fingerprints.look(partial(self._submit, self._fingerprint_pool), again=self._fingerprint_job.ask)
            if self._previews is not None:
                self._previews.look()

    def _expire(self) -> None:
        self._pipeline.expire_overdue()
        self._pipeline.escalate_due()

    def _forward_cancels(self) -> None:
        with self._database.read() as connection:
            unwanted = store.list_cancel_requested(connection, self._host.id)
        for stored in unwanted:
            if self._sources.cancel(stored.identity):
                continue
            sandbox = self._sandbox_registry.live(stored.subject.session_id)
            if sandbox is not None and stored.identity not in self._cancelling:
                self._cancelling.add(stored.identity)
                self._submit(self._cancels, partial(self._forward_cancel, stored.identity, sandbox))

    def _forward_cancel(self, identity: CallIdentity, sandbox: Sandbox) -> None:
        try:
            sandbox.cancel(identity.tool_call_id, identity.attempt)
        finally:
            self._cancelling.discard(identity)


def spare_threads(threads: int) -> int:
    """The threads beside these that no tenant alone can take: a short call of another must not wait for its long ones."""
    return max(1, threads // 4)


def run_guarded(work: Callable[[], None]) -> None:
    """Run it as a thread's outermost frame: what fails is logged, and the rows still say what is due."""
    try:
        work()
    except Fault as fault:
        # Database or engine are away. The rows are untouched; the next poll looks again.
        _log.warning("%s; the next poll tries again", fault)
    except Exception:  # noqa: BLE001 (see above)
        _log.exception("a defect in the worker")
