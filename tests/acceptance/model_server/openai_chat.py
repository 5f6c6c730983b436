"""The part of OpenAI's Chat Completions API that agents use: `POST …/chat/completions`, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from acceptance.model_server.protocol import Json, ServerSentEvent, blocks, event, speaks
from acceptance.model_server.turns import Conversation, OfferedTool, ToolAnswer, Turn

USAGE = {"prompt_tokens": 100, "completion_tokens": 25, "total_tokens": 125}
"""Fixed, so that what an agent reports can be asserted."""


class OpenAIChat:
    """See `ModelProtocol`."""

    def takes_turns(self, method: str, path: str) -> bool:
        """Only completions; the prefix is the agent's base URL."""
        return method == "POST" and path.endswith("/chat/completions")

    def aside(self, method: str, path: str) -> Json | None:
        """None: agents of this API ask for nothing else."""
        del method, path

    def read(self, body: Json) -> Conversation:
        """Each result is a message of its own; those of one assistant message are one turn."""
        tools = tuple(OfferedTool(tool["function"]["name"]) for tool in body.get("tools") or ())
        earlier = turns = 0
        calling = False
        answers: list[ToolAnswer] = []
        for message in body.get("messages", ()):
            match message["role"]:
                case "assistant":
                    calling = calling or bool(message.get("tool_calls"))
                case "tool":
                    turns += calling
                    calling = False
                    said = "\n".join(block["text"] for block in blocks(message) if block["type"] == "text")
                    answers.append(ToolAnswer(message["tool_call_id"], said))
                case "user" if speaks(blocks(message)):
                    earlier, turns, answers, calling = earlier + turns, 0, [], False
        return Conversation(tools=tools, earlier_turns=earlier, turns=turns, answers=tuple(answers))

    def wants_stream(self, path: str, body: Json) -> bool:
        """The body says it."""
        del path
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Json) -> tuple[ServerSentEvent, ...]:
        """Text and arguments in two pieces each, so that the agent must put them together."""
        return (*(event("", chunk) for chunk in self._chunks(turn, body)), ServerSentEvent("", "[DONE]"))

    def whole(self, turn: Turn, body: Json) -> Json:
        """The completion object."""
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(turn.texts) or None}
        if turn.uses:
            message["tool_calls"] = [
                {
                    "id": use.call_id,
                    "type": "function",
                    "function": {"name": use.tool.name, "arguments": json.dumps(dict(use.args))},
                }
                for use in turn.uses
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn.uses else "stop"}
        return {**_head(turn, body, "chat.completion"), "choices": [choice], "usage": USAGE}

    def refusal(self, message: str) -> Json:
        """An `invalid_request_error`."""
        return {"error": {"type": "invalid_request_error", "message": message, "param": None, "code": None}}

    def _chunks(self, turn: Turn, body: Json) -> Iterator[Json]:
        head = _head(turn, body, "chat.completion.chunk")
        (choice,) = self.whole(turn, body)["choices"]
        message = choice["message"]

        def chunk(delta: Json, end: str | None = None) -> Json:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in _halves(message["content"] or ""):
            yield chunk({"content": piece})
        for index, call in enumerate(message.get("tool_calls", ())):
            opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
            yield chunk({"tool_calls": [opening]})
            for piece in _halves(call["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, choice["finish_reason"])
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": USAGE}


def _head(turn: Turn, body: Json, kind: str) -> dict[str, Any]:
    name = turn.uses[0].call_id if turn.uses else "scripted_last"
    return {"id": f"chatcmpl-{name}", "object": kind, "created": 0, "model": body.get("model", "scripted")}


def _halves(text: str) -> tuple[str, ...]:
    return tuple(piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece)
