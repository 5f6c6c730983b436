"""A fake model API on loopback: records the tools that a program offers, and asks for its built-in ones."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from codesdk.cli.client_config import model_answers
from codesdk.cli.client_config.model_answers import ToolUse
from codesdk.cli.client_config.settings import SERVER_NAME

MAX_BODY = 16 * 1024 * 1024
"""Maximum bytes of a request; a program's first one has some hundred thousand."""
MAX_REPEATS = 3
"""How often a program gets the same answer: it may repeat a request, and must not do so forever."""
FETCHED = "/fetched"
"""Path of a page that only a built-in tool asks for."""
TOOL_PREFIXES = (f"mcp__{SERVER_NAME}__", f"mcp_{SERVER_NAME}_", f"{SERVER_NAME}_")
"""Prefixes that the programs put before our tools' names."""


class FakeModelApi:
    """What the program has shown so far."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.tools: set[str] = set()
        """Names of our tools, without prefixes."""
        self.others: set[str] = set()
        """Names of the other tools that it offered."""
        self.fetched = False
        """Whether a tool of the program has asked for a page."""
        self.texts: list[str] = []
        """The requests."""
        self.uses: Sequence[ToolUse] = ()
        """The calls to make, one per answer. Set before the program starts."""
        self.finished = threading.Event()
        """Set once the program was told the last words of a conversation with tools."""
        self._repeats: Counter[int] = Counter()
        self._lock = threading.Lock()

    def record(self, offered: Collection[str]) -> None:
        """Record the names of tools that the program has."""
        self.tools |= {tool for name in offered if (tool := _own_tool(name))}
        self.others |= {name for name in offered if _own_tool(name) is None}

    def respond(self, path: str, raw: str) -> tuple[str, str] | None:
        """Content type and text of the answer to a request; None if it is not a model request."""
        try:
            body = json.loads(raw)
        except ValueError:
            return None
        if not isinstance(body, dict):
            return None
        with self._lock:
            self.texts.append(raw)
            offered = set(model_answers.tool_names(body))
            self.record(offered)
            number = model_answers.results(body)
            self._repeats[number] += 1
            more = offered and number < len(self.uses) and self._repeats[number] <= MAX_REPEATS
            told = model_answers.answer(urlsplit(path).path, body, number, self.uses[number] if more else None)
            if told and offered and not more:
                self.finished.set()
            return told


@contextmanager
def serve_fake_model_api() -> Iterator[FakeModelApi]:
    """Serve the API on a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            size = int(length) if length.isdecimal() else 0
            raw = self.rfile.read(min(size, MAX_BODY)).decode("utf-8", "replace")
            told = fake_model_api.respond(self.path, raw)
            if told is None:
                self._send(400, "application/json", '{"error": {"code": 400, "message": "There is no model here."}}')
            else:
                self._send(200, *told)

        def do_GET(self) -> None:
            if self.path.startswith(FETCHED):
                fake_model_api.fetched = True
            self._send(400, "application/json", '{"error": {"code": 400, "message": "There is no model here."}}')

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("connection", "close")
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the program has ended
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


def _own_tool(name: str) -> str | None:
    prefix = next((prefix for prefix in TOOL_PREFIXES if name.startswith(prefix)), None)
    return name.removeprefix(prefix) if prefix else None
