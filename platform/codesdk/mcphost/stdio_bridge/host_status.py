"""What an MCP host, or a proxy before it, says when it answers and cannot serve just now, in words for whoever waits."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import httpx2

from codesdk.errors import ExitCode, Fault

_MAX_MESSAGE_CHARS = 300
"""Characters of what it said."""
_SERVER_ERROR = 500
_BY_A_PROXY = (502, 504)
_DATABASE = ("DATABASE_", "STORAGE_")


class HostNotReady(Fault):
    """Something answers at the host's address, and says that it cannot serve now."""

    code = "HOST_NOT_READY"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


def check_ready(url: str, answer: httpx2.Response) -> HostNotReady | None:
    """Why there is no answer now and what to do; None where the answer is another one.

    `answer`: has been read.
    """
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
    """The message, in one line, and the code of a JSON-RPC error or of a problem; empty where there is none."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        return "", ""  # a page for people says nothing that the status does not
    body = body if isinstance(body, dict) else {}
    error: Any = body.get("error")
    if isinstance(error, dict):
        data = error.get("data")
        told, code = error.get("message"), data.get("code") if isinstance(data, dict) else None
    else:
        told, code = body.get("detail") or body.get("title"), body.get("code")
    line = "".join(each if each.isprintable() else " " for each in str(told or ""))
    return " ".join(line.split())[:_MAX_MESSAGE_CHARS], code if isinstance(code, str) else ""
