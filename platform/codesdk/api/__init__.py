"""The HTTP API and the process that serves it, with the MCP host on `/mcp`."""

from codesdk.api.app import create_app
from codesdk.api.server import PortTaken, serve

__all__ = ["PortTaken", "create_app", "serve"]
