"""Answers that are owed: a caller was told to ask again, and may come after the end of its call."""

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
_OPEN_AGAIN = (DenialCode.EXPIRED, DenialCode.VOIDED)


class Owed:
    """Remembers which call a repeated one means. Safe to use from any thread; a restart forgets it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._calls: dict[tuple[str, str, str], ToolCallId] = {}

    def keep(self, subject: Subject, name: str, identity: CallIdentity) -> None:
        """The caller was told to make this very call again."""
        with self._guard:
            self._calls[subject.session_id, name, identity.input_hash] = identity.tool_call_id
            while len(self._calls) > MOST:
                del self._calls[next(iter(self._calls))]

    def collected(self, call: ToolCallId) -> None:
        """Its answer was given by its id: the same input is a call of its own from now on."""
        with self._guard:
            for place in [place for place, owed in self._calls.items() if owed == call]:
                del self._calls[place]

    def take(self, subject: Subject, name: str, arguments: dict[str, Any]) -> ToolCallId | None:
        """The call that this one repeats, told once: the next repetition is a call of its own.

        Raises:
            NotCanonical: the arguments have no canonical form.
        """
        if not self._calls:
            return None
        place = (subject.session_id, name, content_hash(arguments))
        with self._guard:
            return self._calls.pop(place, None)


def settles(outcome: Outcome | None) -> bool:
    """Whether what became of a call answers its repetition; where nobody decided, it is asked again."""
    undecided = isinstance(outcome, Denied) and outcome.code in _OPEN_AGAIN
    return outcome is not None and not isinstance(outcome, Waiting) and not undecided
