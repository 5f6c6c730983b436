"""Third-party MCP servers as tool sources: run in sandboxes or reached over HTTP, and pinned to the accepted tools."""
