"""Relays bytes between a tool and an upstream, with budgets and an idle timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from codesdk.sandbox.egress import http_head
from codesdk.sandbox.egress.connection_attempt import ConnectionAttempt, Reason, Refusal
from codesdk.sandbox.egress.dialer import READ_LIMIT, Upstream
from codesdk.sandbox.egress.exec_allowance import ExecAllowance
from codesdk.sandbox.egress.http_body import Body
from codesdk.sandbox.egress.http_head import BadHead
from codesdk.sandbox.egress.multiplexer import ClientStream

MAX_INTERIM = 8
"""1xx responses accepted before the final one."""


@dataclass
class ByteCounts:
    """Bytes relayed each way, including HTTP heads as the upstream saw them."""

    up: int = 0
    down: int = 0


class Relay:
    """Both directions of one connection. Raises `Refusal` when a budget is exceeded."""

    def __init__(
        self,
        client_stream: ClientStream,
        upstream: Upstream,
        allowance: ExecAllowance,
        counts: ByteCounts,
        credit: ByteCredit,
    ) -> None:
        self._client = client_stream
        self._upstream = upstream
        self._allowance = allowance
        self._counts = counts
        self._credit = credit
        self._touch: Callable[[], None] = lambda: None
        self.answered = False
        """Whether the tool has received upstream bytes: then the proxy can't send its own response."""

    async def tunnel(self, first: bytes) -> None:
        """Relay both ways until both end; `first`: bytes already read from the tool."""
        async with _IdleTimeout(self._allowance.idle_s) as idle:
            self._touch = idle.touch
            self.answered = True
            await self._send(first)
            await run_together(self._tunnel_up(), self._tunnel_down())

    async def exchange(self, head: bytes, body: Body, first: bytes, method: str) -> None:
        """Relay one request and its response; `first`: body bytes already read."""
        async with _IdleTimeout(self._allowance.idle_s) as idle:
            self._touch = idle.touch
            await self._send(head)
            up = asyncio.ensure_future(self._request_body(body, first))
            down = asyncio.ensure_future(self._response(method))
            gone = asyncio.ensure_future(self._client.gone())
            try:
                # An early response ends the exchange before the whole request is sent.
                await asyncio.wait((up, down, gone), return_when=asyncio.FIRST_COMPLETED)
                if up.done():
                    up.result()
                await asyncio.wait((down, gone), return_when=asyncio.FIRST_COMPLETED)
                (down if down.done() else gone).result()
            finally:
                await cancel_and_wait(up, down, gone)

    # -- pieces -----------------------------------------------------------------------------------------------------

    async def _send(self, data: bytes) -> None:
        if not data:
            return
        if not self._allowance.send(len(data)):
            raise Refusal(Reason.BYTES_UP, "the exec has reached its limit of sent bytes")
        await self._credit.spend(len(data))
        # Count before sending: part of a failed write may have left.
        self._counts.up += len(data)
        await self._upstream.send(data)
        self._touch()

    async def _pass_down(self, data: bytes) -> None:
        if not self._allowance.receive(len(data)):
            raise Refusal(Reason.BYTES_DOWN, "the exec has reached its limit of received bytes")
        await self._credit.spend(len(data))
        self._counts.down += len(data)
        self.answered = True
        self._touch()
        await self._client.write(data)
        self._touch()

    async def _tunnel_up(self) -> None:
        while data := await self._client.read():
            await self._send(data)
        if self._upstream.writer.can_write_eof():
            self._upstream.writer.write_eof()

    async def _tunnel_down(self) -> None:
        while data := await self._upstream.reader.read(READ_LIMIT):
            await self._pass_down(data)
        self._client.finish()

    async def _request_body(self, body: Body, first: bytes) -> None:
        await self._send(_checked(body, first, Reason.BAD_REQUEST))
        while not body.over:
            data = await self._client.read()
            if not data:
                raise Refusal(Reason.BROKEN, "the request ended in the middle of its body")
            await self._send(_checked(body, data, Reason.BAD_REQUEST))

    async def _response(self, method: str) -> None:
        made = await self._response_head()
        try:
            framing = http_head.response_framing(made, method)
            fields = http_head.forwarded(made)
        except BadHead as error:
            raise Refusal(Reason.BAD_RESPONSE, str(error)) from error
        fields = http_head.set_field(fields, "Connection", "close")
        if framing.chunked:
            fields = http_head.set_field(fields, "Transfer-Encoding", "chunked")
        await self._pass_down(http_head.write_response(made, fields))
        reader = self._upstream.reader
        if framing.length is None and not framing.chunked:
            while data := await reader.read(READ_LIMIT):
                await self._pass_down(data)
        else:
            body = Body(framing, drop_surplus=True)
            while not body.over:
                data = await reader.read(READ_LIMIT)
                if not data:
                    raise Refusal(Reason.BROKEN, "the response ended in the middle of its body")
                await self._pass_down(_checked(body, data, Reason.BAD_RESPONSE))
        self._client.finish()

    async def _response_head(self) -> http_head.Response:
        for _ in range(MAX_INTERIM):
            try:
                head = await self._upstream.reader.readuntil(http_head.END)
                made = http_head.response(head)
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead) as error:
                raise Refusal(Reason.BAD_RESPONSE, f"the upstream's response has no proper head: {error}") from error
            self._touch()
            if made.status == 101:  # noqa: PLR2004 - Switching Protocols
                raise Refusal(Reason.BAD_RESPONSE, "the upstream switches to another protocol")
            if made.status >= 200:  # noqa: PLR2004 - the final response
                return made
        raise Refusal(Reason.BAD_RESPONSE, "interim responses without end")


def _checked(body: Body, data: bytes, reason: Reason) -> bytes:
    try:
        return body.feed(data)
    except BadHead as error:
        raise Refusal(reason, str(error)) from error


class _IdleTimeout:
    """Ends the block with IDLE when it isn't touched for that long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    def touch(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as over:
            raise Refusal(Reason.IDLE, f"no bytes for {self._seconds:g} s") from over


async def run_together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all; the first failure cancels the others and is raised."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)


async def cancel_and_wait(*tasks: asyncio.Future[None]) -> None:
    """Cancel tasks and wait for them, ignoring their errors."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


ReserveBytes = Callable[[ConnectionAttempt, int], int]
"""Reserves bytes of the daily budget. Called on the recorder thread with a connection's current record and the bytes needed.

Returns how many bytes it may transfer, at least those. Raises `Refusal`, which ends the connection.
"""


def unlimited(_attempt: ConnectionAttempt, least: int) -> int:
    """Reserve without a limit."""
    return max(least, 1 << 62)


class ByteCredit:
    """A connection's reserved bytes, both directions, taken in steps so that not every block is a commit."""

    def __init__(self, reserve: Callable[[int], Awaitable[int]]) -> None:
        """`reserve`: reserves at least this many bytes; returns how many, or raises."""
        self._reserve = reserve
        self._left = 0
        self._asking = asyncio.Lock()

    async def spend(self, count: int) -> None:
        """Spend bytes before they are relayed.

        Raises:
            Refusal: the budget is used up.
        """
        if self._left < count:
            # One direction at a time: both at once would reserve two steps.
            async with self._asking:
                while (lacking := count - self._left) > 0:
                    self._left += await self._reserve(lacking)
                self._left -= count
            return
        self._left -= count
