"""Calls that repeat an earlier call of their session, by the client's id or by tool and input (ADR 41).

Two processes can't both miss a repeated id: a unique index makes the later transaction run again. They can't both miss an
equal call either: both look while they hold the tenant's row, as every `reserve` does.
"""

from __future__ import annotations

from functools import cached_property

from codesdk.domain.calls import CallState, ToolCall
from codesdk.domain.ids import SessionId
from codesdk.errors import Fault
from codesdk.storage.writer import Unit
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord


class CallIdTaken(Fault):
    """The client gave the id to another call of the session. Nothing was recorded."""

    code = "CALL_ID_TAKEN"
    status = 409

    def __init__(self, first: CallRecord, call: ToolCall) -> None:
        of = "that tool with another input" if first.call.name == call.name else first.call.name
        super().__init__(
            f"The session has a call with the id {call.identity.runtime_tool_call_id}: one of {of}.",
            advice="Give each call an id of its own; only a repetition, with the same input, has the id of its call.",
            details={"tool_call_id": first.identity.tool_call_id, "tool": first.call.name},
        )


class EarlierCalls:
    """The session's calls that one call may repeat. Reads on demand, each query at most once, inside one unit."""

    def __init__(self, unit: Unit, call: ToolCall, session: SessionId) -> None:
        self._connection = unit.connection
        self._call = call
        self._session = session

    def of_same_id(self) -> CallRecord | None:
        """The call with the same client-given id, in any state.

        Raises:
            CallIdTaken: it is of another tool, or has another input.
        """
        given = self._call.identity.runtime_tool_call_id
        first = store.find_by_client_id(self._connection, self._session, given) if given is not None else None
        if first is None:
            return None
        if (first.call.name, first.identity.input_hash) != (self._call.name, self._call.identity.input_hash):
            raise CallIdTaken(first, self._call)
        return first

    @cached_property
    def in_flight(self) -> CallRecord | None:
        """The newest equal call that is queued or runs."""
        return self._find_equal(CallState.QUEUED, CallState.RUNNING)

    @cached_property
    def waiting(self) -> CallRecord | None:
        """The newest equal call that waits for approval."""
        return self._find_equal(CallState.WAITING)

    @cached_property
    def lost(self) -> str | None:
        """Which equal calls were lost, so that they may have had side effects; None: none was."""
        return store.describe_lost_equal(self._connection, self._session, self._call)

    def _find_equal(self, *states: CallState) -> CallRecord | None:
        return store.find_equal(self._connection, self._session, self._call, states)
