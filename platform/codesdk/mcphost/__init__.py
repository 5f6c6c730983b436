"""The MCP host: agents' tool calls come in here, over streamable HTTP or through the stdio bridge."""

from codesdk.mcphost.host import McpHost

__all__ = ["McpHost"]
