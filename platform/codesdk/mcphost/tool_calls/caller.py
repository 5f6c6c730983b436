"""Who makes a call, and what its request says of how it is to be answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from codesdk.domain.subjects import Subject
from codesdk.mcphost.elicitation.questions import Elicitor
from codesdk.mcphost.tool_calls.client_call_id import ClientCallId
from codesdk.toolcalls.records.call_record import Outcome

ReportProgress = Callable[[float, str], Awaitable[None]]
"""Sends one progress notification: seconds so far, and a line to show."""


@dataclass(frozen=True)
class Caller:
    """Who makes a call, and how its client can be spoken to until the answer."""

    subject: Subject
    report: ReportProgress | None = None
    """None: it wants no progress."""
    asking: Elicitor | None = None
    """None: its user cannot be asked."""
    wait_s: float | None = None
    """Seconds in which it wants an answer in any case, as its session was told; None: what the settings say."""
    call_id: ClientCallId | None = None
    """What the client calls this call."""

    @property
    def has_binding_id(self) -> bool:
        """Whether its program answers for the id, and so can give another. An agent's own is new with each call."""
        return self.call_id is not None and self.call_id.is_binding

    def asks_for(self, outcome: Outcome) -> bool:
        """Whether its id is the call's: then it asks for that call's answer, and not for one more like it."""
        return self.call_id is not None and self.call_id.text == outcome.identity.runtime_tool_call_id
