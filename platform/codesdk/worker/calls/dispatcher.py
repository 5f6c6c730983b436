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
from codesdk.toolcalls.approval.deferred import DeferredApprovals
from codesdk.toolcalls.approval.flow import ApprovalFlow
from codesdk.toolcalls.claim import CallClaimer
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.toolcalls.run.sources import NoSources, Sources
from codesdk.worker.deferred_approvals.dry_runs import DryRuns
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes import reconciliation
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

SANDBOX_THREADS = reconciliation.REMOVAL_PASSES + 1
"""Threads that open and remove sandboxes. Measured on two cores: four remove 7 sandboxes a second, two remove 2."""
FINGERPRINT_THREADS = 4
"""Sandboxes fingerprinted at once."""


class CoalescedJob:
    """Merges requests for the same work: a run that hasn't started serves every request made before it. Thread-safe.

    Without it, a thousand wake-ups would queue a thousand scans of the same rows, and a cancel would wait behind them.
    """

    def __init__(
        self, submit: Callable[[Callable[[], None]], object], work: Callable[[], None], *, most: int = 1
    ) -> None:
        """`submit` schedules a run on a pool; `most`: runs that may be waiting at once."""
        self._submit = submit
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting = 0

    def ask(self) -> None:
        """Request a run that starts after this call."""
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
        self._dequeue()  # first: this run may not see what a later request is about
        self._work()

    def _dequeue(self) -> None:
        with self._lock:
            self._waiting -= 1


class Dispatcher:
    """Schedules the worker's work. A wake-up carries no payload: what to do is read from the database."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        sandbox_registry: SandboxRegistry,
        claims: CallClaimer,
        execution: Execution,
        approval_flow: ApprovalFlow,
        deferred_approvals: DeferredApprovals,
        database: Database,
        threads: int,
        previews: DryRuns | None = None,
        sources: Sources | None = None,
        pool: Callable[[int, str], Executor] = ThreadPoolExecutor,
    ) -> None:
        """`threads`: calls of one tenant that run at once, the same limit as in `CallClaimer`; `spare_threads` more serve others.

        `previews`: runs calls in a throw-away sandbox before a person is asked.

        `sources`: external MCP servers. `pool` creates an executor from a thread count and a name.
        """
        self._previews = previews
        self._sources = sources or NoSources()
        self._host = host
        self._sandbox_registry = sandbox_registry
        self._claims = claims
        self._execution = execution
        self._approval_flow = approval_flow
        self._deferred_approvals = deferred_approvals
        self._database = database
        width = threads + spare_threads(threads)
        self._calls = pool(width, "codesdk-call")
        # A separate pool: a slow engine must not block calls.
        self._sandbox_pool = pool(SANDBOX_THREADS, "codesdk-sandbox")
        # A separate pool: cancels and expiries must work while the engine hangs.
        self._control = pool(1, "codesdk-control")
        # Fingerprinting may open a sandbox and hash large files; cancels must not wait for it.
        self._fingerprint_pool = pool(FINGERPRINT_THREADS, "codesdk-fingerprint")
        self._fingerprints = FileFingerprints(
            host=host, sandbox_registry=sandbox_registry, deferred_approvals=deferred_approvals, database=database
        )
        # One thread per cancel: a sandbox that does not answer blocks its thread for 30 s.
        self._cancels = pool(width, "codesdk-cancel")
        self._cancelling: set[CallIdentity] = set()
        self._draining = threading.Event()
        self._serve_job = self._coalesced(self._calls, self._serve_woken, most=width)
        self._cancel_job = self._coalesced(self._control, self._forward_cancels)
        self._expiry_job = self._coalesced(self._control, self._expire)
        self._fingerprint_job = self._coalesced(self._control, self._look)
        self._reconcile_job = self._coalesced(self._sandbox_pool, self._sandbox_registry.reconcile)

    def wake(self, subject: str) -> None:
        """Handle a wake-up. `subject`: a session id (sandbox, cancel or fingerprint work) or a call id (a call to run)."""
        if not is_id(subject, IdKind.SESSION):
            self._serve_job.ask()
            return
        self._cancel_job.ask()
        if not self._draining.is_set():
            self._reconcile_job.ask()
            self._fingerprint_job.ask()

    def start(self, work: Callable[[], None]) -> None:
        """Run work on the call threads."""
        self._submit(self._calls, work)

    def poll(self) -> None:
        """Look for work without a wake-up. While draining, only for cancels."""
        self._cancel_job.ask()
        if not self._draining.is_set():
            self._submit(self._calls, self._serve)
            self._reconcile_job.ask()
            self._expiry_job.ask()
            self._fingerprint_job.ask()

    def sweep(self) -> None:
        """Remove containers and volumes without an owner."""
        if not self._draining.is_set():
            self._submit(self._sandbox_pool, self._sandbox_registry.sweep)

    def stop_claiming(self) -> None:
        """Claim no more calls. Running calls continue."""
        self._draining.set()
        self._fingerprints.stop()

    def drain(self, timeout_s: float) -> None:
        """Stop claiming and wait up to `timeout_s` for running calls, still forwarding cancels. Hand back the rest.

        A call that is handed back stays `running` in its row and its exec goes on under the runner. Only the next
        worker, which has a higher generation, can end it.
        """
        self.stop_claiming()
        # Recoveries that have not started are dropped; the next worker does them.
        self._calls.shutdown(wait=False, cancel_futures=True)
        waiter = threading.Thread(target=self._calls.shutdown, name="codesdk-drain", daemon=True)
        waiter.start()
        waiter.join(timeout_s)
        self._execution.abandon()
        if self._previews is not None:
            self._previews.close()
        for pool in (self._sandbox_pool, self._control, self._fingerprint_pool):
            pool.shutdown(wait=True, cancel_futures=True)
        self._cancels.shutdown(wait=False, cancel_futures=True)  # a cancel that hangs ends with its connection

    def _coalesced(self, pool: Executor, work: Callable[[], None], *, most: int = 1) -> CoalescedJob:
        return CoalescedJob(partial(self._submit, pool), work, most=most)

    def _submit(self, pool: Executor, work: Callable[[], None]) -> None:
        try:
            pool.submit(run_guarded, work)
        except RuntimeError:
            if not self._draining.is_set():
                raise
            # The pool is shut down. The row remains, and the next worker handles it.

    def _serve_woken(self) -> None:
        # Claim without asking `any` first: after a wake-up there nearly always is a call.
        if not self._draining.is_set() and self._serve_one():
            self._serve()

    def _serve(self) -> None:
        while not self._draining.is_set() and self._claims.any() and self._serve_one():
            pass

    def _serve_one(self) -> bool:
        taken = self._claims.take()
        if isinstance(taken, ClaimedCall):
            try:
                self._run(taken)
            finally:
                self._claims.leave(taken)
        return taken is not None

    def _run(self, claimed: ClaimedCall) -> None:
        session, sandboxes = claimed.stored.subject.session_id, self._sandbox_registry
        self._execution.run(claimed, partial(sandboxes.begin, session), partial(sandboxes.lose, session))

    def _look(self) -> None:
        if not self._draining.is_set():
            self._fingerprints.look(partial(self._submit, self._fingerprint_pool), again=self._fingerprint_job.ask)
            if self._previews is not None:
                self._previews.look()

    def _expire(self) -> None:
        self._deferred_approvals.expire_overdue()
        self._approval_flow.expire_overdue()
        self._approval_flow.escalate_due()

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
    """Extra threads that one tenant can't fill, so other tenants' short calls don't wait behind its long ones."""
    return max(1, threads // 4)


def run_guarded(work: Callable[[], None]) -> None:
    """Run `work` as a thread's outermost frame. Failures are logged; the rows still show what is due."""
    try:
        work()
    except Fault as fault:
        # Database or engine unavailable. The rows are unchanged and the next poll retries.
        _log.warning("%s; the next poll tries again", fault)
    except Exception:  # noqa: BLE001 (see above)
        _log.exception("a defect in the worker")
