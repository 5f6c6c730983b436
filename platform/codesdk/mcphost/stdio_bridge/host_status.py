"""Explains responses of an MCP host, or a proxy in front of it, that cannot serve now."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import httpx2

from codesdk.errors import ExitCode, Fault

_MAX_MESSAGE_CHARS = 300
"""Characters of its message shown."""
_SERVER_ERROR = 500
_BY_A_PROXY = (502, 504)
_DATABASE = ("DATABASE_", "STORAGE_")


class HostNotReady(Fault):
    """The host, or a proxy in front of it, answers that it can't serve now."""

    code = "HOST_NOT_READY"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


def check_ready(url: str, answer: httpx2.Response) -> HostNotReady | None:
    """The fault for a 429 or server error, with advice; None for any other response. `answer` must have been read."""
    status = answer.status_code
    if status != HTTPStatus.TOO_MANY_REQUESTS and status < _SERVER_ERROR:
        return None
    told, code = _error_body(answer)
    phrase = f" {answer.reason_phrase}".rstrip()
    return HostNotReady(
        f"{url} answers HTTP {status}{phrase}{f': {told}' if told else ''}".rstrip(".") + ".",
        advice=f"{_advice(status, code)} {_retry_hint(answer)}",
        details={"status": status, "code": code},
    )


def _advice(status: int, code: str) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "This session, or this address, makes more requests than it may."
    if code.startswith(_DATABASE):
        return "The host is up, and its database is not: start that, or see the host's log."
    if code:
        return "The host is up, and something that it needs is not: its log says more."
    if status in _BY_A_PROXY:
        return "That is a proxy's answer: the host behind it is down, or still starting."
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "It is starting or stopping, or a proxy finds no host behind it."
    return "That is a defect of what answers: its log says more."


def _retry_hint(answer: httpx2.Response) -> str:
    after = answer.headers.get("retry-after", "")
    return f"Try again in {after} s." if after.isascii() and after.isdigit() else "Then try again."


def _error_body(answer: httpx2.Response) -> tuple[str, str]:
    """Message, in one line, and code of a JSON-RPC error or a problem document; empty strings if there is none."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        return "", ""  # an HTML page adds nothing to the status
    body = body if isinstance(body, dict) else {}
    error: Any = body.get("error")
    if isinstance(error, dict):
        data = error.get("data")
        told, code = error.get("message"), data.get("code") if isinstance(data, dict) else None
    else:
        told, code = body.get("detail") or body.get("title"), body.get("code")
    line = "".join(each if each.isprintable() else " " for each in str(told or ""))
    return " ".join(line.split())[:_MAX_MESSAGE_CHARS], code if isinstance(code, str) else ""
