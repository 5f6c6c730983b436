# Generated from codesdk.client.aio by scripts/sync_client.py. Do not edit.
"""Sends requests, with retries, and follows streams, with reconnects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2

from codesdk.client.errors import ApiError, ApiUnreachable
from codesdk.client.exchange import (
    STREAM_REQUEST,
    STREAM_TIMEOUT,
    error_from,
    http_options,
    json_of,
    pause_after_break,
    pause_after_error,
    pause_between_streams,
    request_options,
    stream_headers,
)
from codesdk.client.requests import Request
from codesdk.client.retries import Retries
from codesdk.client.sync.concurrency import HttpClient, sleep

T = TypeVar("T")


class Transport:
    """The connections to one API."""

    def __init__(self, url: str, key: str, retries: Retries) -> None:
        """`url`: the API's address; `key`: the API key."""
        self.url = url
        self._retries = retries
        self._http = HttpClient(**http_options(url, key))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, request: Request[T]) -> T:
        """Send a request and return what it reads from the response.

        Raises:
            ApiError: the API refused it, or doesn't answer.
        """
        return request.read(json_of(self.exchange(request)))

    def exchange(self, request: Request[Any]) -> httpx2.Response:
        """Send a request and return the response, whose body was read.

        Raises:
            ApiError: the API refused it, or doesn't answer.
        """
        sent = 0
        while True:
            sent += 1
            try:
                response = self._http.request(request.method, request.path, **request_options(request))
            except httpx2.TransportError as error:
                pause_s = pause_after_break(self._retries, sent, request, error, self.url)
            else:
                if not response.is_error:
                    return response
                pause_s = pause_after_error(self._retries, sent, request, error_from(response))
            sleep(pause_s)

    @contextmanager
    def download(self, path: str) -> Iterator[httpx2.Response]:
        """A response whose body is read in the block.

        Raises:
            ApiError: the API refused it, or doesn't answer.
        """
        try:
            with self._http.stream("GET", path) as response:
                if response.is_error:
                    response.read()
                    raise error_from(response)
                yield response
        except httpx2.TransportError as error:
            raise ApiUnreachable(self.url, str(error) or type(error).__name__) from error

    def follow(self, path: str, cursor: str | None = None) -> Iterator[httpx2.ServerSentEvent]:
        """The messages of a stream after `cursor`, with reconnects that lose and repeat none, until the caller stops.

        Raises:
            ApiError: the API refuses the stream, or stays unreachable.
        """
        failures = 0
        while True:
            headers = stream_headers(cursor)
            try:
                with self._http.stream("GET", path, headers=headers, timeout=STREAM_TIMEOUT) as response:
                    if response.is_error:
                        response.read()
                        raise error_from(response)
                    for message in httpx2.EventSource(response):
                        failures = 0
                        cursor = message.id or cursor
                        yield message
            except httpx2.TransportError as error:
                failures += 1
                pause_after_break(self._retries, failures, STREAM_REQUEST, error, self.url)
            except ApiError as error:
                failures += 1
                pause_after_error(self._retries, failures, STREAM_REQUEST, error)
            sleep(pause_between_streams(self._retries, failures))
