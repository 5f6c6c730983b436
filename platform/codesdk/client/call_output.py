"""Reads a call's output out of its events."""

from __future__ import annotations

from codesdk.client.models import Event

OUTPUT = "tool.output.delta"
APPROVAL_REQUESTED = "approval.requested"
CALL_END = frozenset({"tool.call.completed", "tool.call.denied"})
SESSION_CLOSED = "sandbox.session_closed"


class OutputFilter:
    """Passes each piece of output on once. After a worker is lost, the next one may log a piece again."""

    def __init__(self) -> None:
        self._last_offset: dict[str, int] = {}

    def new_text(self, event: Event) -> str:
        """The output in this event that was not seen before; empty if there is none."""
        if event.type != OUTPUT:
            return ""
        stream, offset = str(event.payload["stream"]), int(event.payload["offset"])
        if offset <= self._last_offset.get(stream, -1):
            return ""
        self._last_offset[stream] = offset
        return str(event.payload["delta"])
