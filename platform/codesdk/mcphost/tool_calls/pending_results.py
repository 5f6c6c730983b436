"""Answers that are owed: a caller has none yet, and may come again after the end of its call."""

from __future__ import annotations

import threading
from typing import Any

from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.canonical import content_hash
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.toolcalls.records.call_record import Denied, Outcome, Waiting

MAX_PENDING = 1000
"""Answers that are remembered; the oldest goes first. One that is forgotten costs a second question to the person."""
_CallKey = tuple[str, str, str]
"""Session, tool and input hash."""
_UNDECIDED = (DenialCode.EXPIRED, DenialCode.VOIDED)


class PendingResults:
    """Remembers which call a repeated one means. Safe to use from any thread; a restart forgets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[_CallKey, CallIdentity] = {}
        self._keys: dict[ToolCallId, _CallKey] = {}

    def keep(self, subject: Subject, name: str, identity: CallIdentity) -> None:
        """The caller has no answer: it was told to make this very call again, or left, or may not have been heard."""
        key = (subject.session_id, name, identity.input_hash)
        with self._lock:
            self._forget(key)
            self._calls[key] = identity
            self._keys[identity.tool_call_id] = key
            while len(self._calls) > MAX_PENDING:
                self._forget(next(iter(self._calls)))

    def settle(self, call: ToolCallId) -> None:
        """Its answer was given, or it was withdrawn: the same input is a call of its own from now on."""
        with self._lock:
            if (key := self._keys.get(call)) is not None:
                self._forget(key)

    def take(self, subject: Subject, name: str, arguments: dict[str, Any]) -> CallIdentity | None:
        """The call that this one repeats, told once: the next repetition is a call of its own.

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


def is_final(outcome: Outcome | None) -> bool:
    """Whether what became of a call answers its repetition; where nobody decided, it is asked again."""
    undecided = isinstance(outcome, Denied) and outcome.code in _UNDECIDED
    return outcome is not None and not isinstance(outcome, Waiting) and not undecided
