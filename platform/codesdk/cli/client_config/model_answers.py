"""Answers of the fake model: one tool call, or a few words, in each of the four model APIs. Pure functions.

The APIs are Anthropic's Messages, OpenAI's Chat Completions and Responses, and Google's Gemini.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

LAST_WORDS = "Done."


@dataclass(frozen=True)
class ToolUse:
    """A call that the model makes."""

    tool: str
    arguments: dict[str, Any]
    freeform: str | None = None
    """The input of a Codex tool that takes text; it has no arguments."""


def answer(path: str, body: dict[str, Any], number: int, use: ToolUse | None) -> tuple[str, str] | None:
    """Content type and text of the answer to one request; None if the path is none of the four APIs.

    `number`: of the call, for its id. `use`: None for the last words.
    """
    for suffix, make in _APIS:
        if path.endswith(suffix):
            events, whole = make(number, use)
            if suffix == _STREAMED_GEMINI or body.get("stream"):
                return "text/event-stream", "".join(_lines(events))
            return "application/json", json.dumps(whole)
    return None


def tool_names(body: Any) -> Iterator[str]:
    """Yield the names of the tools that a request offers. A namespace, as in Codex, comes before its tools' names."""
    offered = body.get("tools") if isinstance(body, dict) else None
    for tool in offered if isinstance(offered, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("functionDeclarations", tool.get("tools"))
        before = f"{tool.get('name')}__" if "tools" in tool else ""
        if isinstance(inner, list):
            yield from (f"{before}{each.get('name', '')}" for each in inner if isinstance(each, dict))
            continue
        function = tool.get("function")
        # A tool of the provider, such as a web search, has only a type; in Gemini's API only a key.
        yield str(
            (function if isinstance(function, dict) else tool).get("name") or tool.get("type") or next(iter(tool), "")
        )


def results(body: Any) -> int:
    """Count the results of tool calls in a request's conversation."""
    if isinstance(body, list):
        return sum(map(results, body))
    if not isinstance(body, dict):
        return 0
    kind = str(body.get("type", ""))
    if (
        body.get("role") == "tool"
        or kind == "tool_result"
        or kind.endswith("call_output")
        or "functionResponse" in body
    ):
        return 1
    return sum(results(body[key]) for key in ("messages", "input", "contents", "content", "parts") if key in body)


_Answer = tuple[list[dict[str, Any]], dict[str, Any]]
"""The events of a stream, and the same as one object."""


def _messages(number: int, use: ToolUse | None) -> _Answer:
    block: dict[str, Any] = {"type": "text", "text": LAST_WORDS}
    opening: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": LAST_WORDS}
    if use is not None:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": use.tool, "input": use.arguments}
        opening = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(use.arguments)}
    usage = {"input_tokens": 1, "output_tokens": 1}
    whole: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "none",
        "stop_sequence": None,
    }
    whole |= {"content": [block], "stop_reason": "tool_use" if use else "end_turn", "usage": usage}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opening},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ], whole


def _chat(number: int, use: ToolUse | None) -> _Answer:
    message: dict[str, Any] = {"role": "assistant", "content": LAST_WORDS}
    if use is not None:
        function = {"name": use.tool, "arguments": json.dumps(use.arguments)}
        message = {"role": "assistant", "content": None}
        message["tool_calls"] = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
    end = "tool_calls" if use else "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": f"chatcmpl-{number}", "created": 0, "model": "none"}
    chunk = {**head, "object": "chat.completion.chunk"}
    return [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage},
    ], {
        **head,
        "object": "chat.completion",
        "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": end}],
    }


def _responses(number: int, use: ToolUse | None) -> _Answer:
    text = {"type": "output_text", "text": LAST_WORDS, "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text]}
    if use is not None:
        call = {"call_id": f"call_{number}", "name": use.tool}
        if use.freeform is None:
            item = {"type": "function_call", "id": f"fc_{number}", **call, "arguments": json.dumps(use.arguments)}
        else:
            item = {"type": "custom_tool_call", "id": f"ctc_{number}", **call, "input": use.freeform}
    item["status"] = "completed"
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    head = {"id": f"resp_{number}", "object": "response", "created_at": 0, "model": "none"}
    whole = {**head, "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ], whole


def _gemini(number: int, use: ToolUse | None) -> _Answer:
    part: dict[str, Any] = {"text": LAST_WORDS}
    if use is not None:
        part = {"functionCall": {"id": f"call_{number}", "name": use.tool, "args": use.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "none", "responseId": f"r{number}"}
    return [whole], whole


_STREAMED_GEMINI = ":streamGenerateContent"
_APIS = (
    ("/messages", _messages),
    ("/chat/completions", _chat),
    ("/responses", _responses),
    (_STREAMED_GEMINI, _gemini),
    (":generateContent", _gemini),
)


def _lines(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        named = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{named}data: {json.dumps(event)}\n\n"
        if event.get("object") == "chat.completion.chunk" and event["choices"][0]["finish_reason"]:
            yield "data: [DONE]\n\n"
