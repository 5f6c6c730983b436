"""Faults of MCP servers, as callers of their tools see them."""

from __future__ import annotations

from codesdk.errors import Fault
from codesdk.toolcalls.run.sources import ServerLost, ServerSilent


class SourceFault(Fault):
    """An MCP server failed a call."""

    code = "SOURCE_FAILED"
    status = 502

    def __init__(self, source: str, what: str, advice: str = "") -> None:
        super().__init__(f"The MCP server `{source}` {what}.", advice=advice, details={"source": source})
        self.source = source
        self.what = what
        """The message without the server's name."""


class SourceUnavailable(SourceFault):
    """The server doesn't start, or its next start is delayed."""

    code = "SOURCE_UNAVAILABLE"
    retryable = True
    status = 503


class SourceDied(SourceFault, ServerLost):
    """The server ended during a call, whose effect is unknown."""

    code = "SOURCE_DIED"


class SourceProtocolError(SourceFault):
    """The server violated the protocol."""

    code = "SOURCE_PROTOCOL"


class SourceTimeout(SourceFault, ServerSilent):
    """The server didn't answer within the call's timeout, and was sent a cancellation."""

    code = "TIMEOUT"
