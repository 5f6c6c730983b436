"""Submits clients' calls to the pipeline, and recognises calls that repeat an earlier one."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.canonical import content_hash
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.tool_calls.caller import Caller
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.pipeline import CallUncertain, Pipeline
from codesdk.toolcalls.records.call_record import Denied, Outcome, Waiting
from codesdk.toolcalls.repeats import CallIdTaken
from codesdk.toolcalls.results import ResultWaiter

_log = logging.getLogger(__name__)

MAX_PENDING = 1000
"""Pending results remembered; the oldest is dropped first. A dropped one costs a second approval."""
_CallKey = tuple[str, str, str]
"""Session, tool and input hash."""
_UNDECIDED = (DenialCode.EXPIRED, DenialCode.VOIDED)


class PendingResults:
    """Calls whose caller has no result yet and may send the same call again. In memory only; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[_CallKey, CallIdentity] = {}
        self._keys: dict[ToolCallId, _CallKey] = {}

    def keep(self, subject: Subject, name: str, identity: CallIdentity) -> None:
        """Remember a call whose caller was told to repeat it, disconnected, or may not have received the answer."""
        key = (subject.session_id, name, identity.input_hash)
        with self._lock:
            self._forget(key)
            self._calls[key] = identity
            self._keys[identity.tool_call_id] = key
            while len(self._calls) > MAX_PENDING:
                self._forget(next(iter(self._calls)))

    def settle(self, call: ToolCallId) -> None:
        """Forget a call that was answered or withdrawn: the same input is a new call from now on."""
        with self._lock:
            if (key := self._keys.get(call)) is not None:
                self._forget(key)

    def take(self, subject: Subject, name: str, arguments: dict[str, Any]) -> CallIdentity | None:
        """The call that this one repeats; None if there is none. Each is returned once.

        Raises:
            NotCanonical: the arguments have no canonical form.
        """
        if not self._calls:
            return None
        key = (subject.session_id, name, content_hash(arguments))
        with self._lock:
            return self._forget(key)

    def _forget(self, key: _CallKey) -> CallIdentity | None:
        identity = self._calls.pop(key, None)
        if identity is not None:
            del self._keys[identity.tool_call_id]
        return identity


class CallSubmitter:
    """Hands calls to the pipeline. Blocks on the database, so its methods are called in threads."""

    def __init__(self, pipeline: Pipeline, results: ResultWaiter, pending: PendingResults) -> None:
        self._pipeline = pipeline
        self._results = results
        self._pending = pending

    def submit(self, name: str, arguments: dict[str, Any], caller: Caller) -> tuple[Outcome, int]:
        """The call's outcome so far, and the `seq` after which its events begin. A repeated call gets the first one's outcome.

        Raises:
            CallUncertain: the database broke off, and whether the call was recorded can't be read now.
        """
        subject = caller.subject
        start_seq = self._results.place(subject)
        outcome = self._repeated_call(subject, name, arguments)
        # A call approved while nobody waited has run by now: submitted again, it would run a second time.
        if outcome is not None and _is_final(outcome):
            return outcome, start_seq
        try:
            return self._submit(name, arguments, caller), start_seq
        except CallUncertain as fault:
            return self._resolve_uncertain(subject, name, fault), start_seq

    def find(self, subject: Subject, call: ToolCallId) -> tuple[Outcome | None, int]:
        """The outcome so far of an earlier call of this session, and the `seq` to follow it from; None if there is none."""
        start_seq = self._results.place(subject)
        return self._pipeline.find(subject.tenant_id, subject.session_id, call), start_seq

    def _submit(self, name: str, arguments: dict[str, Any], caller: Caller) -> Outcome:
        client_id = caller.call_id
        submit = partial(self._pipeline.submit, name, arguments, caller.subject, join=True)
        try:
            return submit(runtime_tool_call_id=client_id.text if client_id else None)
        except CallIdTaken as fault:
            if client_id is None or client_id.is_binding:
                raise
            _log.info("an agent gave one id to two calls: %s", fault.message)
        return submit()

    def _repeated_call(self, subject: Subject, name: str, arguments: dict[str, Any]) -> Outcome | None:
        repeated = self._pending.take(subject, name, arguments)
        if repeated is None:
            return None
        try:
            return self._pipeline.find(subject.tenant_id, subject.session_id, repeated.tool_call_id)
        except Fault:
            self._pending.keep(subject, name, repeated)  # the database is down: the result is still pending
            raise

    def _resolve_uncertain(self, subject: Subject, name: str, fault: CallUncertain) -> Outcome:
        """Read the call back over another connection, in case only the first one broke.

        Raises:
            CallUncertain: it wasn't found; the call is kept as pending, in case it was recorded.
        """
        try:
            found = self._pipeline.find(subject.tenant_id, subject.session_id, fault.identity.tool_call_id)
        except StorageUnavailable:
            found = None
        if found is None:
            self._pending.keep(subject, name, fault.identity)
            raise fault
        return found


def _is_final(outcome: Outcome) -> bool:
    """Whether a repeated call gets this outcome. An approval that expired or was voided is requested again."""
    undecided = isinstance(outcome, Denied) and outcome.code in _UNDECIDED
    return not isinstance(outcome, Waiting) and not undecided
