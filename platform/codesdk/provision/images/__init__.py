"""Base images, sandbox images and MCP server packages."""
