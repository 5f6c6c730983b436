"""HTTP side of the MCP host: authentication, request limits, resumable streams and OAuth metadata."""
