"""`codesdk mcp`: an MCP server on stdio that forwards to the HTTP host."""
