"""Answers that are owed: a caller has none yet, and may come again after the end of its call."""

from __future__ import annotations

import threading
from typing import Any

from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.canonical import content_hash
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.toolcalls.stored import Denied, Outcome, Waiting

MOST = 1000
"""Answers that are remembered; the oldest goes first. One that is forgotten costs a second question to the person."""
_Place = tuple[str, str, str]
"""Session, tool and input hash."""
_OPEN_AGAIN = (DenialCode.EXPIRED, DenialCode.VOIDED)


class Owed:
    """Remembers which call a repeated one means. Safe to use from any thread; a restart forgets it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._calls: dict[_Place, CallIdentity] = {}
        self._places: dict[ToolCallId, _Place] = {}

    def keep(self, subject: Subject, name: str, identity: CallIdentity) -> None:
        """The caller has no answer: it was told to make this very call again, or left, or may not have been heard."""
        place = (subject.session_id, name, identity.input_hash)
        with self._guard:
            self._forget(place)
            self._calls[place] = identity
            self._places[identity.tool_call_id] = place
            while len(self._calls) > MOST:
                self._forget(next(iter(self._calls)))

    def settled(self, call: ToolCallId) -> None:
        """Its answer was given, or it was withdrawn: the same input is a call of its own from now on."""
        with self._guard:
            if (place := self._places.get(call)) is not None:
                self._forget(place)

    def take(self, subject: Subject, name: str, arguments: dict[str, Any]) -> CallIdentity | None:
        """The call that this one repeats, told once: the next repetition is a call of its own.

        Raises:
            NotCanonical: the arguments have no canonical form.
        """
        if not self._calls:
            return None
        place = (subject.session_id, name, content_hash(arguments))
        with self._guard:
            return self._forget(place)

    def _forget(self, place: _Place) -> CallIdentity | None:
        identity = self._calls.pop(place, None)
        if identity is not None:
            del self._places[identity.tool_call_id]
        return identity


def settles(outcome: Outcome | None) -> bool:
    """Whether what became of a call answers its repetition; where nobody decided, it is asked again."""
    undecided = isinstance(outcome, Denied) and outcome.code in _OPEN_AGAIN
    return outcome is not None and not isinstance(outcome, Waiting) and not undecided
