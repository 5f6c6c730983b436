"""The part of the Anthropic Messages API that agents use: `POST /v1/messages`, streamed or whole, and auxiliary
requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from acceptance.model_server.protocol import Json, ServerSentEvent, blocks, event, speaks
from acceptance.model_server.turns import Conversation, OfferedTool, ToolAnswer, Turn

USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 1}
"""Fixed, so that what an agent reports can be asserted. The start event's output count is 1, as the real API's is."""
OUTPUT_TOKENS = 25


class AnthropicMessages:
    """See `ModelProtocol`."""

    def takes_turns(self, method: str, path: str) -> bool:
        """Only `POST …/v1/messages` itself."""
        return method == "POST" and path.endswith("/v1/messages")

    def aside(self, method: str, path: str) -> Json | None:
        """Token counts, the list of models, and the reachability probe of the root."""
        if method == "POST" and path.endswith("/v1/messages/count_tokens"):
            return {"input_tokens": USAGE["input_tokens"]}
        if method == "GET" and path.endswith("/v1/models"):
            model = {
                "type": "model",
                "id": "scripted",
                "display_name": "Scripted",
                "created_at": "2026-01-01T00:00:00Z",
            }
            return {"data": [model], "has_more": False, "first_id": "scripted", "last_id": "scripted"}
        if method in ("GET", "HEAD") and path == "/":
            return {}
        return None

    def read(self, body: Json) -> Conversation:
        """Turns are counted by user messages: an agent may spread one turn's calls over several assistant messages."""
        tools = tuple(OfferedTool(tool["name"]) for tool in body.get("tools") or ())
        earlier = turns = 0
        calling = False
        answers: list[ToolAnswer] = []
        for message in body.get("messages", ()):
            parts = blocks(message)
            if message["role"] == "assistant":
                calling = calling or any(block["type"] == "tool_use" for block in parts)
                continue
            results = [block for block in parts if block["type"] == "tool_result"]
            if results:
                turns += calling
                answers += [_answer(block) for block in results]
            elif speaks(parts):
                earlier, turns, answers = earlier + turns, 0, []
            calling = False
        return Conversation(tools=tools, earlier_turns=earlier, turns=turns, answers=tuple(answers))

    def wants_stream(self, path: str, body: Json) -> bool:
        """The body says it."""
        del path
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Json) -> tuple[ServerSentEvent, ...]:
        """Every block in two pieces, so that the agent must put them together."""
        return tuple(_events(turn, self.whole(turn, body)))

    def whole(self, turn: Turn, body: Json) -> Json:
        """The message object."""
        content: list[Json] = [{"type": "text", "text": text} for text in turn.texts]
        content += [
            {"type": "tool_use", "id": use.call_id, "name": use.tool.name, "input": dict(use.args)} for use in turn.uses
        ]
        return {
            "id": "msg_" + (turn.uses[0].call_id if turn.uses else "scripted_last"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "content": content,
            "stop_reason": "tool_use" if turn.uses else "end_turn",
            "stop_sequence": None,
            "usage": {**USAGE, "output_tokens": OUTPUT_TOKENS},
        }

    def refusal(self, message: str) -> Json:
        """An `invalid_request_error`."""
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def _events(turn: Turn, message: Json) -> Iterator[ServerSentEvent]:
    head = {**message, "content": [], "stop_reason": None, "usage": USAGE}
    yield event("message_start", {"type": "message_start", "message": head})
    opening: Json
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            opening, kind, field, whole = {"type": "text", "text": ""}, "text_delta", "text", block["text"]
        else:
            opening, kind, field = {**block, "input": {}}, "input_json_delta", "partial_json"
            whole = json.dumps(block["input"])
        yield event("content_block_start", {"type": "content_block_start", "index": index, "content_block": opening})
        for piece in (whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            delta = {"type": kind, field: piece}
            yield event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        yield event("content_block_stop", {"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use" if turn.uses else "end_turn", "stop_sequence": None}
    usage = {"output_tokens": OUTPUT_TOKENS}
    yield event("message_delta", {"type": "message_delta", "delta": end, "usage": usage})
    yield event("message_stop", {"type": "message_stop"})


def _answer(block: Json) -> ToolAnswer:
    content = block.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part["text"] for part in content if part["type"] == "text")
    return ToolAnswer(block["tool_use_id"], content, is_error=bool(block.get("is_error")))
