"""Adapts a byte channel to the MCP SDK's client streams: bounded, rate-limited, one message at a time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from codesdk.errors import Fault
from codesdk.sources.transport.channel import ByteChannel
from codesdk.sources.transport.framing import MAX_NON_MESSAGES, LineBuffer, RateLimit, ServerMisbehaved, parse_message

POLL_S = 2.0
"""Seconds per read: how long a thread takes to notice that the connection is closed."""
Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]
_CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class Streams(NamedTuple):
    """The streams that the client reads and writes."""

    incoming: Incoming
    outgoing: Outgoing


@asynccontextmanager
async def open_streams(
    channel: ByteChannel, monotonic: Callable[[], float], on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Open streams over a channel for the block. `on_end`: called with the reason when the server ends."""
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](0)
    line = _ChannelPump(channel, monotonic, on_end)
    async with anyio.create_task_group() as group:
        group.start_soon(line.read, into)
        group.start_soon(line.write, out)
        try:
            yield Streams(incoming, outgoing)
        finally:
            group.cancel_scope.cancel()
            for stream in (into, incoming, outgoing, out):
                stream.close()


class _ChannelPump:
    """Pumps both directions of a channel."""

    def __init__(self, channel: ByteChannel, monotonic: Callable[[], float], on_end: Callable[[str], None]) -> None:
        self._channel = channel
        self._monotonic = monotonic
        self._on_end = on_end
        # Its own thread limits, so that silent servers don't use up others' threads.
        self._lines, self._pace, self._noise = LineBuffer(), RateLimit(), 0
        self._asking = anyio.CapacityLimiter(1)
        self._reading, self._writing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

    async def read(self, into: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Forward messages one at a time, so that a flood is buffered in the sandbox."""
        with into:
            try:
                while (data := await self._receive()) != b"":
                    for message in self._checked(data or b""):
                        await into.send(message)
            except ServerMisbehaved as end:
                self._on_end(str(end))
            except _CLOSED:
                return  # the client is gone
            except Fault as fault:
                self._on_end(f"is gone: {fault.message}")
            else:
                self._on_end(await self._exit_reason("closed its stdout"))

    def _checked(self, data: bytes) -> Iterator[SessionMessage]:
        for line in self._lines.feed(data):
            message = parse_message(line)
            if message is None:
                self._noise += bool(line.strip())
                if self._noise > MAX_NON_MESSAGES:
                    raise ServerMisbehaved(f"wrote more than {MAX_NON_MESSAGES} lines to stdout that are not messages")
            elif self._pace.keeps(len(line), self._monotonic()):
                yield message
            else:
                raise ServerMisbehaved("sends more than can be processed")

    async def write(self, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send messages to the server."""
        with out:
            async for message in out:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    taken = await to_thread.run_sync(
                        self._channel.send, text.encode() + b"\n", limiter=self._writing, abandon_on_cancel=True
                    )
                except Fault as fault:
                    self._on_end(f"is gone: {fault.message}")
                    return
                if not taken:
                    self._on_end(await self._exit_reason("does not read its input"))
                    return

    async def _receive(self) -> bytes | None:
        return await to_thread.run_sync(self._channel.receive, POLL_S, limiter=self._reading, abandon_on_cancel=True)

    async def _exit_reason(self, otherwise: str) -> str:
        """How the process ended; `otherwise` if it still runs."""
        words = None
        with contextlib.suppress(Fault):
            words = await to_thread.run_sync(self._channel.ended, limiter=self._asking, abandon_on_cancel=True)
        return f"ended ({words})" if words is not None else otherwise
