"""Checks JSON-RPC messages of clients, and says which field can't be taken.

The SDK's parsers drop such a message, or reject it without its id and the field: half a surrogate pair, a number beyond
range, endless nesting, another type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

MAX_DEPTH = 100
"""Nested objects and lists in one message; the parsers of the bridge and of the host accept more."""
_MAX_DIGITS = 400
"""Digits of an integer: more than the largest finite number has."""
_NAMED_LEVELS = 3
"""Levels of a field that is nested too deep that its error names: `params.arguments.content`."""
_NOT_SENT = "This request was not sent"
_NOT_RUN = "This request was not run"
_BOM = "\ufeff"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID_VALUE = re.compile(r'\s*:\s*(-?[0-9]+(?![0-9.eE])|"(?:[^"\\]|\\.)*")')


def check_message(line: bytes) -> tuple[str, list[types.JSONRPCError]]:
    """Return a line's text, and an error for each request in it that can't be forwarded."""
    text = line.decode("utf-8", "replace").removeprefix(_BOM)
    problem = _find_problem(line, text)
    if problem is None:
        return text, []
    if isinstance(problem.message, list):
        return text, [error for each in problem.message for error in _reject_request(each, problem)]
    if problem.code == types.PARSE_ERROR and not text.strip():
        return text, []
    return text, [_reject(problem, _NOT_SENT)] if _awaits_answer(problem) else []


def check_body(body: bytes) -> tuple[bytes, types.JSONRPCError | None]:
    """Return a request's body without a byte order mark, and the error to answer it with if it is no message.

    What the SDK's parser accepts is not parsed again: its handlers name the fields of what they reject.
    """
    body = body.removeprefix(_BOM.encode())
    try:
        parsed = types.jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        pass
    else:
        # A request whose id is of another type parses as a notification, which nobody would answer.
        if not isinstance(parsed, types.JSONRPCNotification) or b"id" not in body:
            return body, None
    problem = _find_problem(body, body.decode("utf-8", "replace"))
    return body, None if problem is None else _reject(problem, _NOT_RUN)


async def name_invalid_field(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware: names the field of parameters that don't fit their method; the SDK's own error doesn't."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(("params", *map(str, first["loc"]))).replace("params.params", "params")
        why = f"Invalid parameters of {ctx.method}: {field}: {first['msg']}."
        raise MCPError(types.INVALID_PARAMS, why, data={"field": field}) from error


class _Problem(NamedTuple):
    """Why a message can't be taken."""

    why: str
    request: Any
    """The id that the message has, of whatever type; None if it has none or it can't be read."""
    code: int = types.INVALID_REQUEST
    message: Any = None
    """None: it can't be parsed."""


def _find_problem(given: bytes, text: str) -> _Problem | None:
    try:
        given.decode("utf-8")
        message = json.loads(text, parse_int=_parse_int)
    except RecursionError:
        return _Problem(_too_deep(_deep_field(text)), _find_id(text))
    except ValueError as error:  # bytes that are not UTF-8, or no JSON
        return _Problem(str(error), _find_id(text), types.PARSE_ERROR)
    if isinstance(message, list):
        return _Problem("several messages in one are not supported", None, message=message)
    why = next(_problems(message), None) or _invalid(message, text)
    own = message.get("id") if isinstance(message, dict) else None
    return _Problem(why, own, message=message) if why is not None else None


def _parse_int(digits: str) -> float:
    # Python refuses to parse longer ones, and would not say where they are.
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf


def _invalid(message: Any, text: str) -> str | None:
    """Say why the SDK would drop the message, or take it for a notification; None if it wouldn't."""
    if isinstance(message, dict) and "id" in message and not _is_id(message["id"]):
        return "its id is neither a string nor an integer"
    try:
        types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"][1:]))  # after the kind of message that it is compared with
        return f"it is not a JSON-RPC message ({f'{field}: ' if field else ''}{first['msg']})"
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
            yield _too_deep(path)
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


def _too_deep(path: str) -> str:
    field = ".".join(path.partition("[")[0].split(".")[:_NAMED_LEVELS])
    return f"{field or 'it'} is nested deeper than {MAX_DEPTH} levels"


def _deep_field(text: str) -> str:
    """The field that is nested too deep, in text that can't be parsed for that."""
    keys: list[str] = []
    name = ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            keys.append(name)
            if len(keys) > MAX_DEPTH:
                break
        elif token[0] in "}]":
            del keys[-1:]
        else:
            name = token[0][1:-1]
    return ".".join(keys[1 : 1 + _NAMED_LEVELS])


def _reject_request(message: Any, problem: _Problem) -> list[types.JSONRPCError]:
    own = problem._replace(request=message.get("id") if isinstance(message, dict) else None, message=message)
    return [_reject(own, _NOT_SENT)] if _awaits_answer(own) else []


def _awaits_answer(problem: _Problem) -> bool:
    """Whether it is a request, or may be one. Nobody waits for the answer to a notification, or to an answer."""
    message = problem.message
    return message is None or (
        isinstance(message, dict) and "id" in message and "result" not in message and "error" not in message
    )


def _reject(problem: _Problem, verdict: str) -> types.JSONRPCError:
    # An id that can't be repeated is answered with none, as JSON-RPC 2.0 has it for one that can't be read.
    request = problem.request
    own = request if _is_id(request) and not (isinstance(request, str) and _has_surrogate(request)) else None
    error = types.ErrorData(code=problem.code, message=f"{verdict}: {problem.why}.")
    return types.JSONRPCError(jsonrpc="2.0", id=own, error=error)


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
