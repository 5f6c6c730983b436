"""Message transport to MCP servers: bounded, and treating everything received as hostile."""
