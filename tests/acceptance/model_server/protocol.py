"""The interface of a model API to the server. Each API is a module like `anthropic.py` that implements it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from acceptance.model_server.turns import Conversation, Turn

Json = Mapping[str, Any]


@dataclass(frozen=True)
class ServerSentEvent:
    """One event of a streamed answer; `name` is empty where the API sends data lines only."""

    name: str
    data: str

    def encode(self) -> bytes:
        """As it goes over the wire."""
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {self.data}\n\n".encode()


def event(name: str, data: Json) -> ServerSentEvent:
    """An event with a JSON object."""
    return ServerSentEvent(name, json.dumps(data, separators=(",", ":")))


def blocks(message: Json) -> list[dict[str, Any]]:
    """The parts of a message, whose content may be a text alone or nothing."""
    content = message.get("content") or ""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def speaks(parts: list[dict[str, Any]]) -> bool:
    """Whether the user says something; agents slip notes of their own in between, as `<system-reminder>` texts."""
    texts = [block["text"].strip() for block in parts if block["type"] == "text"]
    return any(text and not text.startswith("<system-reminder>") for text in texts)


class ModelProtocol(Protocol):
    """One model API: pure translation, no I/O."""

    def takes_turns(self, method: str, path: str) -> bool:
        """Whether this request asks the model to speak."""
        ...

    def aside(self, method: str, path: str) -> Json | None:
        """The answer to a request that asks for no words (a token count, a list of models); None: not of this API."""
        ...

    def read(self, body: Json) -> Conversation:
        """What the request shows."""
        ...

    def wants_stream(self, path: str, body: Json) -> bool:
        """Whether the answer goes out as events."""
        ...

    def stream(self, turn: Turn, body: Json) -> tuple[ServerSentEvent, ...]:
        """The turn as events."""
        ...

    def whole(self, turn: Turn, body: Json) -> Json:
        """The turn as one object."""
        ...

    def refusal(self, message: str) -> Json:
        """The API's body for status 400, which no agent repeats."""
        ...
