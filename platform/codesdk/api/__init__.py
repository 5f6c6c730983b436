"""The HTTP API and the process that serves it, with the MCP host on `/mcp`."""

from codesdk.api.app import create_app
from codesdk.api.server import serve

__all__ = ["create_app", "serve"]
