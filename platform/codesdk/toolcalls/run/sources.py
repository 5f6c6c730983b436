"""The port to third-party MCP servers, which `codesdk.sources` implements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from codesdk.domain.calls import CallIdentity
from codesdk.domain.decisions import Obligations
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault
from codesdk.registry import Tool
from codesdk.sandbox.port import OnOutput
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools import Attachment


@dataclass(frozen=True)
class SourceRequest:
    """One call for an MCP server."""

    tool: Tool
    arguments: dict[str, Any]
    identity: CallIdentity
    tenant: TenantId
    session: SessionId
    profile: Profile
    """The session's, tightened by policy: limits what is shown and kept of the answer. The server has its own profile."""
    obligations: Obligations
    """Policy's obligations for this call."""
    timeout_s: float
    on_output: OnOutput
    """Receives the progress that the server reports."""
    attach: Callable[[Attachment], None]
    sent: Callable[[], None]
    """Called just before the call goes to the server: until then nothing has run."""


class ServerLost(Fault):
    """A server ended while it had a call; whether that took effect is unknown."""

    code = "SERVER_LOST"


class ServerSilent(Fault):
    """A server did not answer a call in time, and was asked to stop; whether it took effect is unknown."""

    code = "SERVER_SILENT"


class Sources(Protocol):
    """Runs calls on servers. Safe to use from the worker's threads."""

    def call(self, asked: SourceRequest) -> ToolResult:
        """Run a call to its end.

        Raises:
            ServerLost: the server had the call, and ended. ServerSilent: it did not answer in time.
            Fault: the server could not be started or reached, or its answer is invalid.
        """
        ...

    def cancel(self, identity: CallIdentity) -> bool:
        """Cancel a call that runs here; False if none does. It ends soon, with or without an answer of its server."""
        ...


class NoSources:
    """For a worker without MCP servers."""

    def call(self, asked: SourceRequest) -> ToolResult:
        """Return an error result."""
        text = f"{asked.tool.name} was not run: this worker starts no MCP servers."
        return ToolResult(text=text, is_error=True, code="SOURCE_UNAVAILABLE")

    def cancel(self, identity: CallIdentity) -> bool:
        """False: no call runs."""
        del identity
        return False
