"""What both transports do around a request: its options, and its failures as the client's errors and pauses."""

from __future__ import annotations

import random
from typing import Any

import httpx2

from codesdk.client.errors import ApiError, ApiUnreachable, error_of
from codesdk.client.requests import Request
from codesdk.client.retries import Retries

TIMEOUT_S = 60.0
"""Seconds for a response, unless a request has its own limit."""
CONNECT_S = 5.0
STREAM_SILENCE_S = 60.0
"""Seconds of silence after which a stream counts as broken; the API sends a comment every 15."""
STREAM_TIMEOUT = httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S, read=STREAM_SILENCE_S)
STREAM_REQUEST: Request[None] = Request("GET", "", lambda _: None, repeatable=True)
"""A stream, as the rules of retries see it."""
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def http_options(url: str, key: str) -> dict[str, Any]:
    """The options of the HTTP client."""
    host = httpx2.URL(url).host
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {key}", "User-Agent": "codesdk-python"},
        "timeout": httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S),
        # A proxy of the environment leads outside, and can't reach this machine's own address.
        "trust_env": not (host == "localhost" or host.startswith("127.") or host == "::1"),
    }


def request_options(request: Request[Any]) -> dict[str, Any]:
    """The options of one request."""
    options: dict[str, Any] = {"params": request.params, "headers": request.headers}
    if request.content is not None:
        options["content"] = request.content
    elif request.json is not None:
        options["json"] = request.json
    if request.timeout_s is not None:
        options["timeout"] = httpx2.Timeout(request.timeout_s, connect=CONNECT_S)
    return options


def stream_headers(cursor: str | None) -> dict[str, str]:
    """The headers of a request for a stream after `cursor`."""
    return {"Accept": "text/event-stream"} | ({"Last-Event-ID": cursor} if cursor is not None else {})


def pause_after_break(
    retries: Retries, sent: int, request: Request[Any], error: httpx2.TransportError, url: str
) -> float:
    """Seconds until the next attempt, after the connection failed.

    Raises:
        ApiUnreachable: there is no next attempt.
    """
    was_sent = not isinstance(error, _NOT_SENT)
    pause = retries.delay_after_break(sent, repeatable=request.repeatable, was_sent=was_sent, random=random.random)
    if pause is None:
        raise ApiUnreachable(url, str(error) or type(error).__name__) from error
    return pause


def pause_after_error(retries: Retries, sent: int, request: Request[Any], error: ApiError) -> float:
    """Seconds until the next attempt, after the API refused the request.

    Raises:
        ApiError: there is no next attempt.
    """
    pause = retries.delay_after_error(sent, error, repeatable=request.repeatable, random=random.random)
    if pause is None:
        raise error
    return pause


def pause_between_streams(retries: Retries, failures: int) -> float:
    """Seconds until a stream that ended is opened again."""
    return retries.delay(max(failures, 1), random.random)


def json_of(response: httpx2.Response) -> Any:
    """The body of a successful response; None if it is empty."""
    return response.json() if response.content else None


def error_from(response: httpx2.Response) -> ApiError:
    """The error of a response that was read."""
    try:
        problem: object = response.json()
    except ValueError:  # a proxy's page
        problem = None
    return error_of(response.status_code, problem, response.headers.get("retry-after"))
