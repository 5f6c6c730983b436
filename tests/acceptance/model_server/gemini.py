"""The part of Google's Gemini API that Gemini CLI uses: `…:generateContent` and `…:streamGenerateContent`."""

from __future__ import annotations

import json
from typing import Any

from acceptance.model_server.protocol import Json, ServerSentEvent, event
from acceptance.model_server.turns import Conversation, OfferedTool, ToolAnswer, Turn

USAGE = {"promptTokenCount": 100, "candidatesTokenCount": 25, "totalTokenCount": 125}
"""Fixed, so that what an agent reports can be asserted."""


class Gemini:
    """See `ModelProtocol`."""

    def takes_turns(self, method: str, path: str) -> bool:
        """Whole or streamed, the verb stands behind the model's name."""
        return method == "POST" and path.endswith((":generateContent", ":streamGenerateContent"))

    def aside(self, method: str, path: str) -> Json | None:
        """Token counts."""
        return {"totalTokens": 100} if method == "POST" and path.endswith(":countTokens") else None

    def read(self, body: Json) -> Conversation:
        """The model's calls, and their responses in what the user's side says next; calls have no ids of the model's."""
        earlier = turns = 0
        calling = False
        answers: list[ToolAnswer] = []
        for content in body.get("contents", ()):
            parts = content.get("parts", ())
            if content.get("role") == "model":
                calling = calling or any("functionCall" in part for part in parts)
                continue
            told = [part["functionResponse"] for part in parts if "functionResponse" in part]
            if told:
                turns += calling
                calling = False
                answers += [
                    ToolAnswer(str(each.get("id") or each["name"]), _text(each.get("response"))) for each in told
                ]
            elif any(part.get("text") for part in parts) and answers:
                earlier, turns, answers = earlier + turns, 0, []
        offered = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations", ())]
        tools = tuple(OfferedTool(each["name"]) for each in offered)
        return Conversation(tools=tools, earlier_turns=earlier, turns=turns, answers=tuple(answers))

    def wants_stream(self, path: str, body: Json) -> bool:
        """The path says it."""
        del body
        return path.endswith(":streamGenerateContent")

    def stream(self, turn: Turn, body: Json) -> tuple[ServerSentEvent, ...]:
        """One event: the API has no smaller piece of a call."""
        return (event("", self.whole(turn, body)),)

    def whole(self, turn: Turn, body: Json) -> Json:
        """The response object; a request that wants JSON by a schema gets the least of it."""
        schema = (body.get("generationConfig") or {}).get("responseJsonSchema")
        texts = [json.dumps(_least(schema))] if schema else turn.texts
        parts: list[Json] = [{"text": text} for text in texts]
        parts += [
            {"functionCall": {"id": use.call_id, "name": use.tool.name, "args": dict(use.args)}} for use in turn.uses
        ]
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, "finishReason": "STOP"}
        return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "scripted", "responseId": "r1"}

    def refusal(self, message: str) -> Json:
        """An `INVALID_ARGUMENT`."""
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


def _text(response: Any) -> str:
    found = response.get("output", response.get("error", response)) if isinstance(response, dict) else response
    return found if isinstance(found, str) else json.dumps(found)


def _least(schema: Any) -> Any:
    kind = str(schema.get("type", "object")).lower()
    if schema.get("enum"):
        return schema["enum"][-1]
    if kind == "object":
        return {name: _least(inner) for name, inner in (schema.get("properties") or {}).items()}
    return {"string": "x", "number": 1, "integer": 1, "boolean": False, "array": []}.get(kind, "x")
