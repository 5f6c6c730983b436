"""The port to other people's MCP servers: who runs a call whose tool is not ours. `codesdk.sources` stands behind it."""

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
    """One call for a server."""

    tool: Tool
    arguments: dict[str, Any]
    identity: CallIdentity
    tenant: TenantId
    session: SessionId
    profile: Profile
    """The session's, with what policy demands: what is shown and kept of the answer. The server has a profile of its own."""
    obligations: Obligations
    """What policy demands of this call."""
    timeout_s: float
    on_output: OnOutput
    """Where what the server reports of its progress goes."""
    attach: Callable[[Attachment], None]
    sent: Callable[[], None]
    """Called just before the server gets it: until then nothing has run."""


class ServerLost(Fault):
    """A server ended while it had a call; whether that took effect is unknown."""

    code = "SERVER_LOST"


class ServerSilent(Fault):
    """A server did not answer a call in its time, and was told to stop; whether it took effect is unknown."""

    code = "SERVER_SILENT"


class Sources(Protocol):
    """Runs calls on servers. Safe to use from the worker's threads."""

    def call(self, asked: SourceRequest) -> ToolResult:
        """Run it to its end; whatever the server does, there is one.

        Raises:
            ServerLost: the server had it, and ended. ServerSilent: it had it, and did not answer in time.
            Fault: the server could not be had, or its answer not be used.
        """
        ...

    def cancel(self, identity: CallIdentity) -> bool:
        """Withdraw a call that runs here; False where none does. It ends soon, whatever its server says."""
        ...


class NoSources:
    """Of a worker that has none."""

    def call(self, asked: SourceRequest) -> ToolResult:
        """Say so."""
        text = f"{asked.tool.name} was not run: this worker starts no MCP servers."
        return ToolResult(text=text, is_error=True, code="SOURCE_UNAVAILABLE")

    def cancel(self, identity: CallIdentity) -> bool:
        """None runs."""
        del identity
        return False
