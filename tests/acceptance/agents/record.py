"""The result of an agent's run, for tests to assert on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ToolOutcome:
    """One tool call as the agent itself reports it."""

    call_id: str
    tool: str
    """As the agent names it, with its prefix."""
    text: str
    is_error: bool


@dataclass(frozen=True)
class AgentRun:
    """The whole run."""

    final_text: str | None
    """The agent's last answer; None where it gave none."""
    failed: bool
    """The agent itself calls the run failed."""
    outcomes: tuple[ToolOutcome, ...]
    servers: Mapping[str, str]
    """MCP server name to the status that the agent reports."""
    tools: tuple[str, ...]
    """Every tool that the agent has, built-in ones too."""
    exit_code: int | None
    """None where the deadline came first."""
    stderr_tail: str

    @property
    def sound(self) -> bool:
        """It came to its end by itself, calls itself done, and had every MCP server that it was given.

        Agents go on without a server that does not answer, so an exit code alone says little.
        """
        connected = bool(self.servers) and all(status == "connected" for status in self.servers.values())
        return connected and self.exit_code == 0 and not self.failed and self.final_text is not None
