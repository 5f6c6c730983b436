"""Lifecycle of MCP servers, and the conversations with them."""
