"""Between a link and the proxy: the runner's channel on one side, one task for each connection on the other."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from codesdk.sandbox.egress.attempt import Attempt, Phase, Reason
from codesdk.sandbox.egress.conduit import Conduit, ConduitBroken
from codesdk.sandbox.runner import channel as channels

_log = logging.getLogger(__name__)

BLOCK = 48 * 1024
"""Bytes sent at once: with its header it fits one fragment of the link, and a cancel waits for no more than that."""
MAX_INFLOW = 2 * channels.MAX_STREAMS * channels.WINDOW
"""Bytes from the runner that wait for the proxy; an honest one never has more than its credit under way."""
LINGER_S = 60.0
"""How long a finished stream waits for the tool to end its side."""
REPORT_S = 1.0
"""At most one record a second of connections that the runner refused itself."""


class Desk(Protocol):
    """What a carrier asks of the service."""

    def admit(
        self, owner: str, call: str, attempt: int, conduit: Conduit, credential: str
    ) -> asyncio.Task[None] | None:
        """Serve this connection, or None where that exec may reach nothing."""
        ...

    async def record(self, attempt: Attempt) -> None:
        """Store it."""
        ...


class StreamConduit:
    """One stream of the channel. Used on the loop alone."""

    def __init__(self, carrier: Carrier, channel: channels.Channel, stream: int) -> None:
        self._carrier = carrier
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
        """Bytes came."""
        self._data.append(data)
        self._readable.set()

    def ended(self) -> None:
        """No more will come."""
        self._ended = True
        self._readable.set()

    def break_off(self) -> None:
        """The stream is gone."""
        self._broken = True
        self._gone.set()
        self._readable.set()
        self.writable.set()

    async def read(self) -> bytes:
        """Some bytes; see the protocol."""
        while not self._data:
            if self._broken:
                raise ConduitBroken("the tool's connection is gone")
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._data.popleft()
        self._channel.consumed(self._stream, len(data))
        self._carrier.kick()
        return data

    async def write(self, data: bytes) -> None:
        """All of it; see the protocol."""
        place = 0
        while place < len(data):
            if self._broken or self.finished:
                raise ConduitBroken("the tool's connection is gone")
            room = self._channel.room(self._stream)
            if room == 0:
                self.writable.clear()
                await self.writable.wait()
                continue
            self._channel.send(self._stream, data[place : place + room])
            place += room
            self._carrier.kick()

    async def gone(self) -> None:
        """Wait for the end; see the protocol."""
        await self._gone.wait()
        raise ConduitBroken("the tool's connection is gone")

    def finish(self) -> None:
        """No more bytes to the tool."""
        self.finished = True
        self._channel.finish(self._stream)
        self._carrier.kick()

    def reset(self) -> None:
        """End it at once."""
        if not self._broken:
            self.break_off()
            self._carrier.reset(self._stream)


class Carrier:
    """All egress of one link. `feed`, `refused` and `lost` may be called from any thread."""

    def __init__(
        self,
        owner: str,
        loop: asyncio.AbstractEventLoop,
        desk: Desk,
        send: Callable[[bytes], None],
        broken: Callable[[str], None],
    ) -> None:
        """Send: to the runner, may block, OSError or LinkLost when that is gone. Broken: the runner misbehaves."""
        self._owner = owner
        self._loop = loop
        self._desk = desk
        self._send = send
        self._on_broken = broken
        self._channel = channels.Channel(opener=False)
        self._conduits: dict[int, StreamConduit] = {}
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="sandbox-egress-send")
        self._sending = False
        self._dead = False
        self._lock = threading.Lock()
        self._inflow = 0
        self._refusals = 0
        self._reporter: asyncio.Task[None] | None = None

    # -- from the link ----------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Frames from the runner."""
        with self._lock:
            self._inflow += len(data)
            flood = self._inflow > MAX_INFLOW
        if flood:
            self._on_broken("the runner sends more than it was granted")
        else:
            self._loop.call_soon_threadsafe(self._take_in, data)

    def refused(self, count: int) -> None:
        """The runner refused connections of processes that may not use egress."""
        self._loop.call_soon_threadsafe(self._note, min(max(count, 1), 1_000_000))

    def lost(self) -> None:
        """The link is gone, and with it every stream."""
        self._loop.call_soon_threadsafe(self._lose)

    # -- on the loop ------------------------------------------------------------------------------------------------

    def _take_in(self, data: bytes) -> None:
        with self._lock:
            self._inflow -= len(data)
        if self._dead:
            return
        try:
            for event in self._channel.feed(data):
                self._on_event(event)
        except (channels.Broken, ValueError, TypeError, KeyError, RecursionError) as error:
            self._break(f"the runner's egress frames make no sense: {error!r}")
        self.kick()

    def _on_event(self, event: channels.Event) -> None:
        if isinstance(event, channels.Opened):
            self._open(event)
            return
        conduit = self._conduits.get(event.stream)
        if conduit is None:
            return
        if isinstance(event, channels.Received):
            conduit.received(event.data)
        elif isinstance(event, channels.Finished):
            conduit.ended()
        else:
            del self._conduits[event.stream]
            conduit.break_off()

    def _open(self, event: channels.Opened) -> None:
        call, attempt, credential = json.loads(event.label)
        conduit = StreamConduit(self, self._channel, event.stream)
        task = self._desk.admit(self._owner, str(call), int(attempt), conduit, str(credential))
        if task is None:
            self.reset(event.stream)
            return
        self._conduits[event.stream] = conduit
        task.add_done_callback(lambda _: self._served(event.stream, conduit))

    def _served(self, stream: int, conduit: StreamConduit) -> None:
        if conduit.finished:
            # What waits is still sent; a tool that then keeps its side open does not keep the stream.
            self._loop.call_later(LINGER_S, conduit.reset)
        else:
            conduit.reset()
        self._conduits.pop(stream, None)

    def kick(self) -> None:
        """Send what there is, one block at a time."""
        if self._sending or self._dead or not self._channel.pending:
            return
        block = self._channel.take(BLOCK)
        if not block:
            return
        self._sending = True
        self._loop.run_in_executor(self._sender, self._send, block).add_done_callback(self._sent)
        for conduit in self._conduits.values():
            conduit.writable.set()

    def _sent(self, done: asyncio.Future[None]) -> None:
        self._sending = False
        if done.cancelled() or done.exception() is not None:
            self._lose()  # the link reports why
        else:
            self.kick()

    def reset(self, stream: int) -> None:
        """End a stream at once."""
        self._conduits.pop(stream, None)
        if self._dead:
            return
        try:
            self._channel.reset(stream)
        except channels.Broken as error:
            self._break(str(error))
        self.kick()

    def _break(self, why: str) -> None:
        _log.warning("egress of sandbox %s ended: %s", self._owner, why)
        self._lose()
        self._on_broken(why)

    def _lose(self) -> None:
        if self._dead:
            return
        self._dead = True
        self._sender.shutdown(wait=False, cancel_futures=True)
        conduits = list(self._conduits.values())
        self._conduits.clear()
        for conduit in conduits:
            conduit.break_off()

    def _note(self, count: int) -> None:
        self._refusals += count
        if self._reporter is None or self._reporter.done():
            self._reporter = self._loop.create_task(self._report())

    async def _report(self) -> None:
        while self._refusals:
            count, self._refusals = self._refusals, 0
            attempt = Attempt(
                owner=self._owner,
                call="",
                attempt=0,
                number=0,
                phase=Phase.REFUSED,
                reason=Reason.NOT_THE_EXEC,
                detail="a process that belongs to no exec with egress",
                count=count,
            )
            try:
                await self._desk.record(attempt)
            except Exception:  # noqa: BLE001 - the recorder is somebody else's; nothing was let through
                _log.exception("a refused egress attempt of %s could not be recorded", self._owner)
            await asyncio.sleep(REPORT_S)
