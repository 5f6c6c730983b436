"""Reads the lines of a stdio client, and answers those that can't be forwarded.

The SDK's reader drops a line that it can't parse, and JSON can't carry some values that it does parse: half a surrogate
pair, NaN, a number beyond range. A request in such a line would never be answered.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import mcp_types as types
from pydantic import ValidationError

MAX_DEPTH = 100
"""Nested objects and lists in one line; the parsers of this side and of the host accept more."""
_BOM = "\ufeff"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID_VALUE = re.compile(r'\s*:\s*(-?[0-9]+(?![0-9.eE])|"(?:[^"\\]|\\.)*")')

Answer = Callable[[types.JSONRPCError], Awaitable[None]]


class ClientLines:
    """The lines that can be forwarded, as text."""

    def __init__(self, lines: AsyncIterable[bytes], answer: Answer) -> None:
        self._lines = lines
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each line that can be forwarded; answer the requests in the others."""
        async for line in self._lines:
            text, errors = check_line(line)
            for error in errors:
                await self._answer(error)
            if not errors:
                yield text


def check_line(line: bytes) -> tuple[str, list[types.JSONRPCError]]:
    """Return the line's text, and an error for each request in it that can't be forwarded."""
    text = line.decode("utf-8", "replace").removeprefix(_BOM)
    try:
        line.decode("utf-8")
        message = json.loads(text)
    except RecursionError:
        return text, _reject(_find_id(text), types.INVALID_REQUEST, f"it is nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:  # bytes that are not UTF-8, no JSON, or an integer of too many digits
        return text, _reject(_find_id(text), types.PARSE_ERROR, str(error)) if text.strip() else []
    if isinstance(message, list):
        why = "several messages in one line are not supported"
        return text, [error for each in message for error in _reject_request(each, why)]
    unsendable = next(_problems(message), None) or _invalid(message, text)
    return text, _reject_request(message, unsendable) if unsendable is not None else []


def _invalid(message: Any, text: str) -> str | None:
    """Say why the SDK would drop the message, or take it for a notification; None if it wouldn't."""
    if isinstance(message, dict) and "id" in message and not _is_id(message["id"]):
        return "its id is neither a string nor an integer"
    try:
        types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"it is not a JSON-RPC message ({first['msg']})"
    return None


def _problems(message: Any) -> Iterator[str]:
    """Yield what in the message can't be sent as JSON, with the path of the field."""
    waiting: list[tuple[str, Any, int]] = [("", message, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        name = path or "it"
        if isinstance(value, str) and _has_surrogate(value):
            yield f"{name} contains half a surrogate pair (U+D800 to U+DFFF), which is not text"
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{name} is not a finite number, or is too large"
        elif isinstance(value, dict | list) and depth >= MAX_DEPTH:
            yield f"it is nested deeper than {MAX_DEPTH} levels"
        elif isinstance(value, dict):
            for key, inner in value.items():
                if _has_surrogate(key):
                    yield f"a key of {name} contains half a surrogate pair (U+D800 to U+DFFF), which is not text"
                else:
                    waiting.append((f"{path}.{key}".lstrip("."), inner, depth + 1))
        elif isinstance(value, list):
            waiting += [(f"{path}[{at}]", inner, depth + 1) for at, inner in enumerate(value)]


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text) if not text.isascii() else False


def _reject_request(message: Any, why: str) -> list[types.JSONRPCError]:
    if not isinstance(message, dict) or "id" not in message or "result" in message or "error" in message:
        return []  # a notification, or an answer: nobody waits for one of ours
    return _reject(message["id"], types.INVALID_REQUEST, why)


def _reject(request: Any, code: int, why: str) -> list[types.JSONRPCError]:
    # An id that can't be repeated is answered with none, as JSON-RPC 2.0 has it for one that can't be read.
    own = request if _is_id(request) and not (isinstance(request, str) and _has_surrogate(request)) else None
    error = types.ErrorData(code=code, message=f"This request was not sent: {why}.")
    return [types.JSONRPCError(jsonrpc="2.0", id=own, error=error)]


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _find_id(text: str) -> str | int | None:
    """Find the id of a message that is not JSON as a whole: the member of its outermost object."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        elif depth == 1 and token[0] == '"id"' and (value := _ID_VALUE.match(text, token.end())):
            found: str | int = json.loads(value[1])
            return found
    return None
