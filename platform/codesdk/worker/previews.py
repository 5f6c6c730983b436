"""Tries calls in copies of their workspaces, before people are asked about them (ADR 30)."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from codesdk.domain.ids import SandboxId, SessionId
from codesdk.errors import Fault
from codesdk.sandbox.port import FileMark, FileName, Sandbox
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.toolcalls import preparations, store
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.preview import TRIES, Tried, failed
from codesdk.toolcalls.rehearsal import profile_of, rehearse
from codesdk.toolcalls.stored import StoredCall
from codesdk.toolcalls.unasked import Trial
from codesdk.worker.copies import Copies, NotWanted
from codesdk.worker.host import Host
from codesdk.worker.looking import marks_of, names_of, unseen
from codesdk.worker.rooms import Rooms
from codesdk.worker.still import Still

_log = logging.getLogger(__name__)

MOST = 4
"""Copies on one host at once: each is a sandbox of its session's size, which no quota of a tenant counts."""
MOST_OF_TENANT = 2
"""Of one tenant; what is beyond waits in order, and others go first."""
LOST = "It was begun twice, and each time the worker that made it was lost."


class FilesMoving(Fault):
    """The files that a call names are being written."""

    code = "FILES_MOVING"
    retryable = True


class NotConfined(Fault):
    """A sandbox in which a call could do harm before anybody has allowed it."""

    code = "NOT_CONFINED"


class _Job:
    """One trial under way."""

    def __init__(self, stored: StoredCall) -> None:
        self.stored = stored
        self.unwanted = threading.Event()
        self.copy: Sandbox | None = None
        self.begun = 0
        self.ending = False


class Previews:
    """The trials of one host. `look` and `close` are called from one thread at a time."""

    def __init__(
        self, *, host: Host, rooms: Rooms, copies: Copies, pipeline: Pipeline, database: Database, place: Path
    ) -> None:
        """`place`: a directory whose disk may hold snapshots while they are copied."""
        self._host = host
        self._rooms = rooms
        self._copies = copies
        self._pipeline = pipeline
        self._database = database
        self._place = place
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._closed = False
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="codesdk-preview")
        # A sandbox that does not answer must hold up nobody's look.
        self._enders = ThreadPoolExecutor(MOST, thread_name_prefix="codesdk-preview-end")

    def look(self) -> None:
        """Begin what waits, oldest first, as far as there is room; end what nobody wants any more."""
        self._end_unwanted()
        with self._lock:
            if not self._closed:  # not here: an engine that hangs must hold up no cancel
                self._enders.submit(self._copies.tend)
        with self._database.read() as connection:
            waiting = preparations.to_try(connection, self._host.id)
        for stored in waiting:
            self._begin(stored)

    def close(self) -> None:
        """End what runs, and remove its copies. The next worker begins it again."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs.values())
        for job in jobs:
            self._end(job)
        self._threads.shutdown(wait=True)
        self._enders.shutdown(wait=True)

    def _begin(self, stored: StoredCall) -> None:
        """Try it, if there is room. A session has one trial at a time: each is a snapshot of its workspace."""
        with self._lock:
            at_work = [job.stored for job in self._jobs.values()]
            tenants = Counter(other.tenant_id for other in at_work)
            is_busy = any(other.subject.session_id == stored.subject.session_id for other in at_work)
            if self._closed or is_busy or len(at_work) >= MOST or tenants[stored.tenant_id] >= MOST_OF_TENANT:
                return
            job = self._jobs[stored.identity.tool_call_id] = _Job(stored)
            self._threads.submit(self._see, job)

    def _see(self, job: _Job) -> None:
        call = job.stored.identity.tool_call_id
        try:
            self._try(job)
        except NotWanted:
            _log.info("call %s is tried no longer: it ended, or this worker stops", call)
            self._give_back(job)
        except Fault as fault:
            _log.warning("call %s is tried again: %s", call, fault)
        except Exception:  # noqa: BLE001 (the thread's outermost frame: the row still says what is due)
            _log.exception("a defect: call %s could not be tried", call)
        finally:
            with self._lock:
                job.copy = None
                del self._jobs[call]

    def _give_back(self, job: _Job) -> None:
        """What was cut short because this worker stops was not lost with it."""
        if not self._closed or not job.begun:
            return
        try:
            self._pipeline.try_cut_short(job.stored.identity.tool_call_id)
        except Fault as fault:
            _log.info("a trial counts although it was cut short: %s", fault)

    def _try(self, job: _Job) -> None:
        stored = job.stored
        names = names_of(self._pipeline, stored)
        trial = self._pipeline.trial(stored)
        sandbox: Sandbox | None = None
        tried: Tried | None = None
        try:
            sandbox = self._rooms.ready(SessionId(stored.subject.session_id))
            if trial is not None and (stored.preview_tries or 0) >= TRIES:
                tried = failed(trial.tool, trial.obligations, LOST)
            elif trial is not None:
                self._rehearse(job, trial, sandbox, names)
                return
        except Fault as fault:
            if job.unwanted.is_set():
                raise NotWanted from fault
            if fault.retryable and (stored.preview_tries or 0) + job.begun < TRIES:
                raise
            tried = failed(trial.tool, trial.obligations, str(fault)) if trial is not None else None
        self._put(job, _marks_now(sandbox, names), tried)

    def _rehearse(self, job: _Job, trial: Trial, sandbox: Sandbox, names: tuple[FileName, ...]) -> None:
        """Try it in a copy, and put the question; the copy is removed after that, since a person may wait."""
        stored = job.stored

        def begins(unit: Unit, copy: SandboxId) -> bool:
            job.begun = 1
            return self._pipeline.try_begins(unit, stored, copy)

        with (
            self._copies.open(stored.image, profile_of(stored), begins) as copy,
            Still(self._place) as still,
        ):
            job.copy = copy
            _check_confined(copy)
            marks = _held_still(sandbox, still, names)
            copy.restore(still.pieces())
            if job.unwanted.is_set():
                raise NotWanted
            self._put(job, marks, rehearse(copy, stored, trial.tool, trial.obligations, still.contents))

    def _put(self, job: _Job, marks: tuple[FileMark, ...], tried: Tried | None) -> None:
        if job.unwanted.is_set():
            raise NotWanted  # what was cut short is no preview
        self._pipeline.put(job.stored.identity.tool_call_id, marks, tried)

    def _end_unwanted(self) -> None:
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            with self._database.read() as connection:
                stored = store.find(connection, job.stored.identity.tool_call_id)
            if stored is None or stored.state.terminal:
                self._end(job)

    def _end(self, job: _Job) -> None:
        job.unwanted.set()
        with self._lock:  # while it has a copy its thread runs, and so these threads take work
            if job.copy is not None and not job.ending:
                job.ending = True
                self._enders.submit(partial(self._stop, job, job.copy))

    @staticmethod
    def _stop(job: _Job, copy: Sandbox) -> None:
        identity = job.stored.identity
        try:
            copy.cancel(identity.tool_call_id, identity.attempt)
        except Fault as fault:
            _log.info("a trial of call %s was not stopped: %s", identity.tool_call_id, fault)  # its time is short
        finally:
            job.ending = False


def _check_confined(copy: Sandbox) -> None:
    """By what was read back of it: nothing runs before an approval where it could reach a network or the machine.

    Raises:
        NotConfined: it could.
    """
    facts = copy.attestation
    if facts.runtime == "plain" or not set(facts.network_interfaces) <= {"lo"}:
        raise NotConfined("The sandboxes here are not closed off enough to run anything before it is approved.")


def _held_still(sandbox: Sandbox, still: Still, names: tuple[FileName, ...]) -> tuple[FileMark, ...]:
    """Take the snapshot, and see that what the call names is in it as an approval then binds it."""
    marks = marks_of(sandbox, names)
    for _ in range(2):
        still.take(sandbox)
        after = marks_of(sandbox, names)
        if after == marks:
            return marks
        marks = after
    raise FilesMoving("The files that this call names were being changed while they were copied.")


def _marks_now(sandbox: Sandbox | None, names: tuple[FileName, ...]) -> tuple[FileMark, ...]:
    """The files as they are; what nobody can see is bound as such, so that it runs nothing that is there then."""
    if sandbox is None:
        return unseen(names)
    try:
        return marks_of(sandbox, names)
    except Fault:
        return unseen(names)
