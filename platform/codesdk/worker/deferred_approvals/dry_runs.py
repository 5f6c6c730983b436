"""Dry runs: runs calls in copies of their workspaces before a person is asked to approve them (ADR 30)."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from codesdk.domain.ids import SandboxId, SessionId
from codesdk.errors import Fault
from codesdk.registry import Tool
from codesdk.sandbox.port import FileFingerprint, NamedPath, Sandbox
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.toolcalls.approval import store as deferrals
from codesdk.toolcalls.approval.deferred import DeferredApprovals, DryRunPlan
from codesdk.toolcalls.previews.dry_run import dry_run, dry_run_profile
from codesdk.toolcalls.previews.preview import MAX_DRY_RUNS, PreviewResult, failed_preview
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.tools import NO_TRANSFERS, Transfers
from codesdk.worker.deferred_approvals.file_fingerprints import (
    fingerprints,
    shown_scripts,
    unreadable_fingerprints,
)
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.registry import SandboxRegistry
from codesdk.worker.sandboxes.throwaway import DryRunCancelled, ThrowawaySandboxes
from codesdk.worker.workspaces.workspace_copy import SnapshotFile

_log = logging.getLogger(__name__)

MAX_DRY_RUNS_AT_ONCE = 4
"""Dry runs on one host at once. Each needs a sandbox of its session's size, and no tenant quota counts it."""
MAX_OF_TENANT = 2
"""Dry runs of one tenant at once. Its others wait in order, behind other tenants'."""
LOST_TWICE = "It was begun twice, and each time the worker that made it was lost."


class FilesMoving(Fault):
    """The files named by a call changed while they were copied."""

    code = "FILES_MOVING"
    retryable = True


class NotConfined(Fault):
    """The sandbox is not isolated enough to run a call before it is approved."""

    code = "NOT_CONFINED"


class _Job:
    """A dry run in progress."""

    def __init__(self, stored: CallRecord) -> None:
        self.stored = stored
        self.cancelled = threading.Event()
        self.sandbox_copy: Sandbox | None = None
        self.begun = 0
        self.ending = False


class DryRuns:
    """Dry runs on one host. Call `look` and `close` from one thread at a time."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        sandbox_registry: SandboxRegistry,
        throwaway: ThrowawaySandboxes,
        deferred_approvals: DeferredApprovals,
        database: Database,
        place: Path,
        transfers: Callable[[CallRecord, Tool], Transfers] = lambda *_: NO_TRANSFERS,
    ) -> None:
        """`place`: a directory for temporary snapshots. `transfers`: what calls that move bytes or trees are given."""
        self._transfers = transfers
        self._host = host
        self._sandbox_registry = sandbox_registry
        self._throwaway = throwaway
        self._deferred_approvals = deferred_approvals
        self._database = database
        self._place = place
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._closed = False
        self._threads = ThreadPoolExecutor(MAX_DRY_RUNS_AT_ONCE, thread_name_prefix="codesdk-preview")
        # A separate pool: a sandbox that does not answer must not block `look`.
        self._cancel_threads = ThreadPoolExecutor(MAX_DRY_RUNS_AT_ONCE, thread_name_prefix="codesdk-preview-end")

    def look(self) -> None:
        """Start waiting dry runs, oldest first, within the limits. Cancel those whose call has ended."""
        self._cancel_unwanted()
        with self._lock:
            if not self._closed:  # on another thread: an engine that hangs must not block cancels
                self._cancel_threads.submit(self._throwaway.tend)
        with self._database.read() as connection:
            waiting = deferrals.awaiting_dry_run(connection, self._host.id)
        for stored in waiting:
            self._begin(stored)

    def close(self) -> None:
        """Cancel running dry runs and remove their sandboxes. The next worker starts them again."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            self._end(job)
        self._threads.shutdown(wait=True)
        self._cancel_threads.shutdown(wait=True)

    def _begin(self, stored: CallRecord) -> None:
        """Start a dry run within the limits. One per session at a time, since each takes a snapshot of its workspace."""
        with self._lock:
            at_work = [job.stored for job in self._jobs.values()]
            tenants = Counter(other.tenant_id for other in at_work)
            is_busy = any(other.subject.session_id == stored.subject.session_id for other in at_work)
            if (
                self._closed
                or is_busy
                or len(at_work) >= MAX_DRY_RUNS_AT_ONCE
                or tenants[stored.tenant_id] >= MAX_OF_TENANT
            ):
                return
            job = self._jobs[stored.identity.tool_call_id] = _Job(stored)
            self._threads.submit(self._run_job, job)

    def _run_job(self, job: _Job) -> None:
        call = job.stored.identity.tool_call_id
        try:
            self._prepare(job)
        except DryRunCancelled:
            _log.info("call %s is tried no longer: it ended, or this worker stops", call)
            self._refund(job)
        except Fault as fault:
            _log.warning("call %s is tried again: %s", call, fault)
        except Exception:  # noqa: BLE001 (the thread's outermost frame: the row still says what is due)
            _log.exception("a defect: call %s could not be tried", call)
        finally:
            with self._lock:
                job.sandbox_copy = None
                del self._jobs[call]

    def _refund(self, job: _Job) -> None:
        """Don't count a dry run that ended only because this worker stops."""
        if not self._closed or not job.begun:
            return
        try:
            self._deferred_approvals.refund_dry_run(job.stored.identity.tool_call_id)
        except Fault as fault:
            _log.info("a trial counts although it was cut short: %s", fault)

    def _prepare(self, job: _Job) -> None:
        stored = job.stored
        names = self._deferred_approvals.named_files(stored)
        trial = self._deferred_approvals.trial(stored)
        sandbox: Sandbox | None = None
        tried: PreviewResult | None = None
        try:
            sandbox = self._sandbox_registry.ready(SessionId(stored.subject.session_id))
            if trial is not None and (stored.preview_tries or 0) >= MAX_DRY_RUNS:
                tried = failed_preview(trial.tool, trial.obligations, LOST_TWICE)
            elif trial is not None:
                self._dry_run(job, trial, sandbox, names)
                return
        except Fault as fault:
            if job.cancelled.is_set():
                raise DryRunCancelled from fault
            if fault.retryable and (stored.preview_tries or 0) + job.begun < MAX_DRY_RUNS:
                raise
            tried = failed_preview(trial.tool, trial.obligations, str(fault)) if trial is not None else None
        self._put(job, sandbox, _marks_now(sandbox, names), tried)

    def _dry_run(self, job: _Job, trial: DryRunPlan, sandbox: Sandbox, names: tuple[NamedPath, ...]) -> None:
        """Run it in a copy of the workspace, then request the approval. The copy is removed last, since a person may wait."""
        stored = job.stored

        def begins(unit: Unit, sandbox_copy: SandboxId) -> bool:
            job.begun = 1
            return self._deferred_approvals.begin_dry_run(unit, stored, sandbox_copy)

        with (
            self._throwaway.open(stored.image, dry_run_profile(stored), begins) as sandbox_copy,
            SnapshotFile(self._place) as snapshot,
        ):
            job.sandbox_copy = sandbox_copy
            _check_confined(sandbox_copy)
            marks = _consistent_snapshot(sandbox, snapshot, names)
            sandbox_copy.restore(snapshot.pieces())
            if job.cancelled.is_set():
                raise DryRunCancelled
            transfers = self._transfers(stored, trial.tool)
            found = dry_run(sandbox_copy, stored, trial.tool, trial.obligations, snapshot.contents, transfers=transfers)
            self._put(job, sandbox, marks, found)

    def _put(
        self, job: _Job, sandbox: Sandbox | None, marks: tuple[FileFingerprint, ...], tried: PreviewResult | None
    ) -> None:
        if job.cancelled.is_set():
            raise DryRunCancelled  # a partial run is not a preview
        scripts = _scripts_now(sandbox, marks, self._deferred_approvals.script_paths(job.stored))
        self._deferred_approvals.put(job.stored.identity.tool_call_id, marks, tried, scripts)

    def _cancel_unwanted(self) -> None:
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            with self._database.read() as connection:
                stored = store.find(connection, job.stored.identity.tool_call_id)
            if stored is None or stored.state.terminal:
                self._end(job)

    def _end(self, job: _Job) -> None:
        job.cancelled.set()
        with self._lock:  # while the job has a sandbox the pools are still open
            if job.sandbox_copy is not None and not job.ending:
                job.ending = True
                self._cancel_threads.submit(partial(self._stop, job, job.sandbox_copy))

    @staticmethod
    def _stop(job: _Job, sandbox_copy: Sandbox) -> None:
        identity = job.stored.identity
        try:
            sandbox_copy.cancel(identity.tool_call_id, identity.attempt)
        except Fault as fault:
            _log.info(
                "a trial of call %s was not stopped: %s", identity.tool_call_id, fault
            )  # it times out soon anyway
        finally:
            job.ending = False


def _check_confined(sandbox_copy: Sandbox) -> None:
    """Check by attestation that the sandbox can't reach a network or the machine.

    Raises:
        NotConfined: it can.
    """
    facts = sandbox_copy.attestation
    if facts.runtime == "plain" or not set(facts.network_interfaces) <= {"lo"}:
        raise NotConfined("The sandboxes here are not closed off enough to run anything before it is approved.")


def _consistent_snapshot(
    sandbox: Sandbox, snapshot: SnapshotFile, names: tuple[NamedPath, ...]
) -> tuple[FileFingerprint, ...]:
    """Take a snapshot whose named files match the returned fingerprints, which the approval binds."""
    marks = fingerprints(sandbox, names)
    for _ in range(2):
        snapshot.take(sandbox)
        after = fingerprints(sandbox, names)
        if after == marks:
            return marks
        marks = after
    raise FilesMoving("The files that this call names were being changed while they were copied.")


def _scripts_now(
    sandbox: Sandbox | None, marks: tuple[FileFingerprint, ...], paths: Sequence[str]
) -> list[dict[str, Any]]:
    """What people are shown of scripts; nothing if the sandbox doesn't answer, and the approval is requested anyway."""
    try:
        return shown_scripts(sandbox, marks, paths)
    except Fault as fault:
        _log.warning("people are asked without the text of scripts: %s", fault)
        return []


def _marks_now(sandbox: Sandbox | None, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...]:
    """Fingerprint the files now. Unreadable ones are bound as unreadable, so the call fails if they exist when it runs."""
    if sandbox is None:
        return unreadable_fingerprints(names)
    try:
        return fingerprints(sandbox, names)
    except Fault:
        return unreadable_fingerprints(names)
