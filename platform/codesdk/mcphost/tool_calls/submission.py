"""How a client's call is taken: as a call of its own, as the one that it repeats, or in doubt whether it was taken."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.tool_calls.caller import Caller
from codesdk.mcphost.tool_calls.pending_results import PendingResults, is_final
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records.call_record import Outcome
from codesdk.toolcalls.results import Results
from codesdk.toolcalls.submission.idempotency import CallIdTaken
from codesdk.toolcalls.submission.uncertain_commit import CallUncertain

_log = logging.getLogger(__name__)


class CallSubmitter:
    """Hands calls to the pipeline. Waits for the database, so it is used in threads."""

    def __init__(self, pipeline: Pipeline, results: Results, owed: PendingResults) -> None:
        self._pipeline = pipeline
        self._results = results
        self._pending = owed

    def submit(self, name: str, arguments: dict[str, Any], caller: Caller) -> tuple[Outcome, int]:
        """What was asked for, on its way, and where its events begin; Finished where it was, for a caller that comes again.

        Raises:
            CallUncertain: it may be there, and nobody can say now.
        """
        subject = caller.subject
        place = self._results.place(subject)
        outcome = self._repeated_call(subject, name, arguments)
        # Approved while nobody waited, a call has run: asked again, it would be approved and run a second time.
        if outcome is not None and is_final(outcome):
            return outcome, place
        try:
            return self._submit(name, arguments, caller), place
        except CallUncertain as fault:
            return self._resolve_indeterminate(subject, name, fault), place

    def find(self, subject: Subject, call: ToolCallId) -> tuple[Outcome | None, int]:
        """A call of this session that was made before; None where there is none."""
        place = self._results.place(subject)
        return self._pipeline.find(subject.tenant_id, subject.session_id, call), place

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
        """What became of the call that this one repeats; None where it repeats none."""
        repeated = self._pending.take(subject, name, arguments)
        if repeated is None:
            return None
        try:
            return self._pipeline.find(subject.tenant_id, subject.session_id, repeated.tool_call_id)
        except Fault:
            self._pending.keep(subject, name, repeated)  # the database is away: it is owed still
            raise

    def _resolve_indeterminate(self, subject: Subject, name: str, fault: CallUncertain) -> Outcome:
        """Where only the connection broke, another one tells.

        Raises:
            CallUncertain: it tells nothing; the call is owed, in case it is there.
        """
        try:
            found = self._pipeline.find(subject.tenant_id, subject.session_id, fault.identity.tool_call_id)
        except StorageUnavailable:
            found = None
        if found is None:
            self._pending.keep(subject, name, fault.identity)
            raise fault
        return found
