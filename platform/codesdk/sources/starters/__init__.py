"""Starts MCP servers: in sandboxes, or as connections to remote ones."""
