"""What a server offers, as it was listed last."""

from __future__ import annotations

from codesdk.registry.pins import OfferedTool


class ToolListing:
    """What a server offers."""

    def __init__(self, server: str, tools: tuple[OfferedTool, ...], unusable: dict[str, str]) -> None:
        self.server = server
        """What it calls itself."""
        self.tools = tools
        self.unusable = unusable
        """Why a tool is not among them, by name."""

    def hashes(self) -> dict[str, str]:
        """By name."""
        return {tool.name: tool.hash for tool in self.tools}
