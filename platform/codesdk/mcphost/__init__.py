"""The MCP host: receives agents' tool calls over streamable HTTP, and serves the stdio bridge."""

from codesdk.mcphost.host import McpHost

__all__ = ["McpHost"]
