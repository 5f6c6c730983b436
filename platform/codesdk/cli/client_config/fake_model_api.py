"""A fake model API on loopback: records the tools that a program offers its model, and rejects every request."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from codesdk.cli.client_config.clients import SERVER_NAME

MAX_BODY = 16 * 1024 * 1024
"""Maximum bytes of a request; a program's first one has some hundred thousand."""
TOOL_PREFIXES = (f"mcp__{SERVER_NAME}__", f"mcp_{SERVER_NAME}_", f"{SERVER_NAME}_")
"""Prefixes that the programs put before our tools' names."""


class FakeModelApi:
    """The tools recorded so far."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.tools: set[str] = set()
        """Names of our tools, without prefixes."""
        self.tools_received = threading.Event()

    def handle_request(self, body: Any) -> None:
        """Record the tools in a request body."""
        found = {name for name in map(_own_tool, _tool_names(body)) if name}
        if found:
            self.tools |= found
            self.tools_received.set()


@contextmanager
def serve_fake_model_api() -> Iterator[FakeModelApi]:
    """Serve the API on a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            size = int(length) if length.isdecimal() else 0
            raw = self.rfile.read(min(size, MAX_BODY))
            with contextlib.suppress(ValueError):  # not JSON, so not a model request
                fake_model_api.handle_request(json.loads(raw))
            self._refuse()

        def do_GET(self) -> None:
            self._refuse()

        def _refuse(self) -> None:
            # No program retries a 400, and the tools are recorded by now.
            body = b'{"error": {"type": "invalid_request_error", "code": 400, "message": "There is no model here."}}'
            self.send_response(400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake_model_api = FakeModelApi(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield fake_model_api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _tool_names(body: Any) -> Iterator[str]:
    """Yield the tool names in a request of any of the four APIs: Messages, Responses, Chat Completions, Gemini."""
    offered = body.get("tools") if isinstance(body, dict) else None
    for tool in offered if isinstance(offered, list) else ():
        if not isinstance(tool, dict):
            continue
        function = tool.get("function")
        yield str((function if isinstance(function, dict) else tool).get("name", ""))
        inner = tool.get("functionDeclarations", tool.get("tools"))
        before = f"{tool.get('name')}__" if "tools" in tool else ""  # a namespace, as in Codex
        for each in inner if isinstance(inner, list) else ():
            if isinstance(each, dict):
                yield f"{before}{each.get('name', '')}"


def _own_tool(name: str) -> str | None:
    prefix = next((prefix for prefix in TOOL_PREFIXES if name.startswith(prefix)), None)
    return name.removeprefix(prefix) if prefix else None
