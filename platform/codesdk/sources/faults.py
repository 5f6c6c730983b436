"""What can be wrong with somebody else's MCP server, for whoever called one of its tools."""

from __future__ import annotations

from codesdk.errors import Fault
from codesdk.toolcalls.run.sources import ServerLost, ServerSilent


class SourceFault(Fault):
    """A server did not do what a call needed."""

    code = "SOURCE_FAILED"
    status = 502

    def __init__(self, source: str, what: str, advice: str = "") -> None:
        super().__init__(f"The MCP server `{source}` {what}.", advice=advice, details={"source": source})
        self.source = source
        self.what = what
        """What it did: the message without its name."""


class SourceUnavailable(SourceFault):
    """It cannot be had now: it does not start, or it is not tried again yet."""

    code = "SOURCE_UNAVAILABLE"
    retryable = True
    status = 503


class SourceDied(SourceFault, ServerLost):
    """It ended, or was ended, while a call was with it; whether that took effect is unknown."""

    code = "SOURCE_DIED"


class SourceProtocolError(SourceFault):
    """It answered something that the protocol does not have."""

    code = "SOURCE_PROTOCOL"


class SourceTimeout(SourceFault, ServerSilent):
    """It did not answer in the call's time, and was told to stop."""

    code = "TIMEOUT"
