"""MCP resources of a session: artifacts, workspace files and subscriptions to them."""
