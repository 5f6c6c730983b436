"""Serves the scripted model on a loopback port, in a thread, and records every request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from acceptance.model_server.anthropic import AnthropicMessages
from acceptance.model_server.gemini import Gemini
from acceptance.model_server.openai_chat import OpenAIChat
from acceptance.model_server.openai_responses import OpenAIResponses
from acceptance.model_server.protocol import Json, ModelProtocol
from acceptance.model_server.script import Script
from acceptance.model_server.turns import AmbiguousTool, Conversation, Turn, next_turn

PROTOCOLS: tuple[ModelProtocol, ...] = (AnthropicMessages(), OpenAIChat(), OpenAIResponses(), Gemini())
"""Tried in order; each API has paths of its own, so one server can serve all agents."""
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"})
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
START_LIMIT_S = 10.0
STOP_LIMIT_S = 10.0


@dataclass(frozen=True)
class ModelRequest:
    """One request as it came. Secret headers hold only the length of what they held; query strings are not kept."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json
    conversation: Conversation | None = None
    """Where the model was asked to speak."""
    turn: Turn | None = None
    """What it said."""
    status: int = 200

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the offered tools."""
        return tuple(tool.name for tool in self.conversation.tools) if self.conversation else ()


class ModelServer:
    """A context manager: listens from `with` on; `url` is the base URL for agents.

    Raises:
        TimeoutError: from entering or leaving, where the server does not start or stop within ten seconds.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._requests: list[ModelRequest] = []
        app = Starlette(routes=[Route("/{path:path}", self._handle, methods=METHODS)])
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                # An agent that still holds a connection open must not keep the test from ending.
                timeout_graceful_shutdown=1,
            )
        )
        self._socket = socket.socket()
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="model-server", daemon=True
        )

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """Every request so far, in order of arrival."""
        return tuple(self._requests)

    @property
    def turns(self) -> tuple[ModelRequest, ...]:
        """The requests that the script answered: those that offered tools."""
        return tuple(request for request in self.requests if request.tools)

    def __enter__(self) -> Self:
        self._socket.bind(("127.0.0.1", 0))
        self._thread.start()
        deadline = time.monotonic() + START_LIMIT_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise TimeoutError("The model server did not start.")
            time.sleep(0.005)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_LIMIT_S)
        self._socket.close()
        if self._thread.is_alive():
            raise TimeoutError("The model server did not stop.")

    async def _handle(self, request: Request) -> Response:
        body = _parse(await request.body())
        method, path = request.method, request.url.path
        headers = {name: _shown(name, value) for name, value in request.headers.items()}
        for protocol in PROTOCOLS:
            if protocol.takes_turns(method, path):
                return self._speak(protocol, ModelRequest(method, path, headers, body))
        for protocol in PROTOCOLS:
            answer = protocol.aside(method, path)
            if answer is not None:
                self._requests.append(ModelRequest(method, path, headers, body))
                return JSONResponse(dict(answer))
        self._requests.append(ModelRequest(method, path, headers, body, status=404))
        return JSONResponse({"error": {"type": "not_found_error", "message": f"No script for {path}"}}, status_code=404)

    def _speak(self, protocol: ModelProtocol, seen: ModelRequest) -> Response:
        conversation = protocol.read(seen.body)
        try:
            turn = next_turn(self._script, conversation)
        except AmbiguousTool as error:
            self._requests.append(replace(seen, conversation=conversation, status=400))
            return JSONResponse(dict(protocol.refusal(str(error))), status_code=400)
        self._requests.append(replace(seen, conversation=conversation, turn=turn))
        if not protocol.wants_stream(seen.path, seen.body):
            return JSONResponse(dict(protocol.whole(turn, seen.body)))
        events = [one.encode() for one in protocol.stream(turn, seen.body)]
        return StreamingResponse(iter(events), media_type="text/event-stream")


def _parse(raw: bytes) -> dict[str, Any]:
    """The JSON object of a body; a body that is none is kept as text, for the test to see."""
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError:
        return {"unreadable": raw[:500].decode(errors="replace")}
    return body if isinstance(body, dict) else {"unreadable": body}


def _shown(name: str, value: str) -> str:
    return f"<{len(value)} characters>" if name.lower() in SECRET_HEADERS else value
