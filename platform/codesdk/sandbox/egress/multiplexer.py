"""Connects a sandbox's link to the proxy: demultiplexes the runner's egress channel into one stream per connection."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, Reason
from codesdk.sandbox.runner.protocol import mux as channels

_log = logging.getLogger(__name__)

BLOCK_BYTES = 48 * 1024
"""Bytes per send: with its header it fits one fragment of the link, so that a cancel waits for no more."""
MAX_INFLOW = 2 * channels.MAX_STREAMS * channels.WINDOW
"""Bytes from the runner queued for the proxy; flow control keeps an honest runner below it."""
LINGER_S = 60.0
"""Seconds that a finished stream waits for the tool to close its side."""
REPORT_S = 1.0
"""Seconds between records of connections that the runner itself refused."""


class ClientDisconnected(Exception):
    """The tool closed the connection, or the link to the sandbox is gone."""


class ConnectionHandler(Protocol):
    """The multiplexer's view of the egress service."""

    def admit(
        self, owner: str, call: str, attempt: int, client_stream: ClientStream, credential: str
    ) -> asyncio.Task[None] | None:
        """Serve this connection; None if its exec has no egress."""
        ...

    async def record(self, attempt: ConnectionAttempt) -> None:
        """Record an attempt."""
        ...


class ClientStream:
    """One connection of a tool, as a stream of the channel. Used on the event loop only."""

    def __init__(self, multiplexer: EgressMultiplexer, channel: channels.Multiplexer, stream: int) -> None:
        self._multiplexer = multiplexer
        self._channel = channel
        self._stream = stream
        self._data: deque[bytes] = deque()
        self._ended = False
        self._broken = False
        self.finished = False
        self._readable = asyncio.Event()
        self.writable = asyncio.Event()
        self._gone = asyncio.Event()

    def received(self, data: bytes) -> None:
        """Add received bytes."""
        self._data.append(data)
        self._readable.set()

    def ended(self) -> None:
        """Mark the end of the received bytes."""
        self._ended = True
        self._readable.set()

    def abort(self) -> None:
        """Mark the stream as broken."""
        self._broken = True
        self._gone.set()
        self._readable.set()
        self.writable.set()

    async def read(self) -> bytes:
        """Some bytes; empty when the tool sends no more.

        Raises:
            ClientDisconnected: the connection is gone.
        """
        while not self._data:
            if self._broken:
                raise ClientDisconnected("the tool's connection is gone")
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._data.popleft()
        self._channel.consumed(self._stream, len(data))
        self._multiplexer.flush()
        return data

    async def write(self, data: bytes) -> None:
        """Send all of it, waiting for credit.

        Raises:
            ClientDisconnected: the connection is gone.
        """
        place = 0
        while place < len(data):
            if self._broken or self.finished:
                raise ClientDisconnected("the tool's connection is gone")
            room = self._channel.room(self._stream)
            if room == 0:
                self.writable.clear()
                await self.writable.wait()
                continue
            self._channel.send(self._stream, data[place : place + room])
            place += room
            self._multiplexer.flush()

    async def gone(self) -> None:
        """Wait until the connection is gone, without reading; then raises ClientDisconnected."""
        await self._gone.wait()
        raise ClientDisconnected("the tool's connection is gone")

    def finish(self) -> None:
        """Send no more bytes to the tool."""
        self.finished = True
        self._channel.finish(self._stream)
        self._multiplexer.flush()

    def reset(self) -> None:
        """End both directions at once."""
        if not self._broken:
            self.abort()
            self._multiplexer.reset(self._stream)


class EgressMultiplexer:
    """The egress connections of one link. `feed`, `refused` and `lost` may be called from any thread."""

    def __init__(
        self,
        owner: str,
        loop: asyncio.AbstractEventLoop,
        handler: ConnectionHandler,
        send: Callable[[bytes], None],
        broken: Callable[[str], None],
    ) -> None:
        """`send`: to the runner; may block, and raises OSError or ConnectionLost. `broken`: called if the runner misbehaves."""
        self._owner = owner
        self._loop = loop
        self._handler = handler
        self._send = send
        self._on_broken = broken
        self._channel = channels.Multiplexer(opener=False)
        self._streams: dict[int, ClientStream] = {}
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="sandbox-egress-send")
        self._sending = False
        self._closed = False
        self._lock = threading.Lock()
        self._pending_bytes = 0
        self._refused_count = 0
        self._reporter: asyncio.Task[None] | None = None

    # -- from the link ----------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Handle frames from the runner."""
        with self._lock:
            self._pending_bytes += len(data)
            flood = self._pending_bytes > MAX_INFLOW
        if flood:
            self._on_broken("the runner sends more than it was granted")
        else:
            self._loop.call_soon_threadsafe(self._feed_channel, data)

    def refused(self, count: int) -> None:
        """Count connections that the runner refused because their process has no egress."""
        self._loop.call_soon_threadsafe(self._count_refused, min(max(count, 1), 1_000_000))

    def lost(self) -> None:
        """Abort all streams: the link is gone."""
        self._loop.call_soon_threadsafe(self._close_all)

    # -- on the loop ------------------------------------------------------------------------------------------------

    def _feed_channel(self, data: bytes) -> None:
        with self._lock:
            self._pending_bytes -= len(data)
        if self._closed:
            return
        try:
            for event in self._channel.feed(data):
                self._on_event(event)
        except (channels.MuxError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._fail(f"the runner's egress frames are malformed: {error!r}")
        self.flush()

    def _on_event(self, event: channels.Event) -> None:
        if isinstance(event, channels.StreamOpened):
            self._open(event)
            return
        client_stream = self._streams.get(event.stream)
        if client_stream is None:
            return
        if isinstance(event, channels.DataReceived):
            client_stream.received(event.data)
        elif isinstance(event, channels.StreamEnded):
            client_stream.ended()
        else:
            del self._streams[event.stream]
            client_stream.abort()

    def _open(self, event: channels.StreamOpened) -> None:
        call, attempt, credential = json.loads(event.label)
        client_stream = ClientStream(self, self._channel, event.stream)
        task = self._handler.admit(self._owner, str(call), int(attempt), client_stream, str(credential))
        if task is None:
            self.reset(event.stream)
            return
        self._streams[event.stream] = client_stream
        task.add_done_callback(lambda _: self._on_served(event.stream, client_stream))

    def _on_served(self, stream: int, client_stream: ClientStream) -> None:
        if client_stream.finished:
            # Queued bytes are still sent, but a tool that keeps its side open doesn't keep the stream.
            self._loop.call_later(LINGER_S, client_stream.reset)
        else:
            client_stream.reset()
        self._streams.pop(stream, None)

    def flush(self) -> None:
        """Send queued bytes, one block at a time."""
        if self._sending or self._closed or not self._channel.pending:
            return
        block = self._channel.take(BLOCK_BYTES)
        if not block:
            return
        self._sending = True
        self._loop.run_in_executor(self._sender, self._send, block).add_done_callback(self._sent)
        for client_stream in self._streams.values():
            client_stream.writable.set()

    def _sent(self, done: asyncio.Future[None]) -> None:
        self._sending = False
        if done.cancelled() or done.exception() is not None:
            self._close_all()  # the link reports the cause
        else:
            self.flush()

    def reset(self, stream: int) -> None:
        """Reset a stream."""
        self._streams.pop(stream, None)
        if self._closed:
            return
        try:
            self._channel.reset(stream)
        except channels.MuxError as error:
            self._fail(str(error))
        self.flush()

    def _fail(self, why: str) -> None:
        _log.warning("egress of sandbox %s ended: %s", self._owner, why)
        self._close_all()
        self._on_broken(why)

    def _close_all(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._sender.shutdown(wait=False, cancel_futures=True)
        streams = list(self._streams.values())
        self._streams.clear()
        for client_stream in streams:
            client_stream.abort()

    def _count_refused(self, count: int) -> None:
        self._refused_count += count
        if self._reporter is None or self._reporter.done():
            self._reporter = self._loop.create_task(self._report())

    async def _report(self) -> None:
        while self._refused_count:
            count, self._refused_count = self._refused_count, 0
            attempt = ConnectionAttempt(
                owner=self._owner,
                call="",
                attempt=0,
                number=0,
                phase=AttemptPhase.REFUSED,
                reason=Reason.NOT_THE_EXEC,
                detail="a process that belongs to no exec with egress",
                count=count,
            )
            try:
                await self._handler.record(attempt)
            except Exception:  # noqa: BLE001 - the recorder is somebody else's; nothing was let through
                _log.exception("a refused egress attempt of %s could not be recorded", self._owner)
            await asyncio.sleep(REPORT_S)
