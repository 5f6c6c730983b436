"""The part of OpenAI's Responses API that Codex uses: `POST …/responses`, streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from acceptance.model_server.protocol import Json, ServerSentEvent, event
from acceptance.model_server.turns import Conversation, OfferedTool, ToolAnswer, Turn

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 20},
    "output_tokens": 25,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 125,
}
"""Fixed, so that what an agent reports can be asserted."""


class OpenAIResponses:
    """See `ModelProtocol`."""

    def takes_turns(self, method: str, path: str) -> bool:
        """Only responses; the prefix is the agent's base URL."""
        return method == "POST" and path.endswith("/responses")

    def aside(self, method: str, path: str) -> Json | None:
        """None: the list of models is shared with other APIs, and Codex does without."""
        del method, path

    def read(self, body: Json) -> Conversation:
        """Calls and their outputs are items of one list, in order."""
        earlier = turns = 0
        calling = False
        answers: list[ToolAnswer] = []
        given = body.get("input")
        for item in given if isinstance(given, list) else ():
            match item.get("type", "message"):
                case "function_call":
                    calling = True
                case "function_call_output":
                    turns += calling
                    calling = False
                    answers.append(ToolAnswer(item["call_id"], _text(item.get("output"))))
                case "message" if item.get("role") == "user" and answers:
                    earlier, turns, answers, calling = earlier + turns, 0, [], False
        return Conversation(tools=tuple(_tools(body)), earlier_turns=earlier, turns=turns, answers=tuple(answers))

    def wants_stream(self, path: str, body: Json) -> bool:
        """The body says it."""
        del path
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Json) -> tuple[ServerSentEvent, ...]:
        """Every item announced, told and done."""
        return tuple(
            event(kind, {"type": kind, "sequence_number": number, **more})
            for number, (kind, more) in enumerate(self._events(turn, body))
        )

    def whole(self, turn: Turn, body: Json) -> Json:
        """The response object."""
        output: list[Json] = []
        if turn.texts:
            part = {"type": "output_text", "text": "\n".join(turn.texts), "annotations": []}
            output.append(
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
            )
        for use in turn.uses:
            call = {"type": "function_call", "id": f"fc_{use.call_id}", "call_id": use.call_id, "name": use.tool.name}
            call |= {"arguments": json.dumps(dict(use.args)), "status": "completed"}
            output.append(call if use.tool.namespace is None else {**call, "namespace": use.tool.namespace})
        return {**_head(turn, body), "status": "completed", "output": output, "usage": USAGE}

    def refusal(self, message: str) -> Json:
        """An `invalid_request_error`."""
        return {"error": {"type": "invalid_request_error", "message": message, "param": None, "code": None}}

    def _events(self, turn: Turn, body: Json) -> Iterator[tuple[str, dict[str, Any]]]:
        whole = self.whole(turn, body)
        yield "response.created", {"response": _head(turn, body)}
        for index, item in enumerate(whole["output"]):
            where = {"item_id": item["id"], "output_index": index}
            bare = {"content": []} if item["type"] == "message" else {"arguments": ""}
            yield (
                "response.output_item.added",
                {"output_index": index, "item": {**item, **bare, "status": "in_progress"}},
            )
            if item["type"] == "message":
                text = item["content"][0]["text"]
                yield "response.output_text.delta", {**where, "content_index": 0, "delta": text}
                yield "response.output_text.done", {**where, "content_index": 0, "text": text}
            else:
                yield "response.function_call_arguments.delta", {**where, "delta": item["arguments"]}
                yield "response.function_call_arguments.done", {**where, "arguments": item["arguments"]}
            yield "response.output_item.done", {"output_index": index, "item": item}
        yield "response.completed", {"response": whole}


def _head(turn: Turn, body: Json) -> dict[str, Any]:
    name = turn.uses[0].call_id if turn.uses else "scripted_last"
    model = body.get("model", "scripted")
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "model": model,
        "output": [],
    }


def _tools(body: Json) -> Iterator[OfferedTool]:
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            yield from (OfferedTool(inner["name"], tool["name"]) for inner in tool.get("tools", ()))
        elif "name" in tool:
            yield OfferedTool(tool["name"])


def _text(output: Any) -> str:
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return output if isinstance(output, str) else json.dumps(output)
