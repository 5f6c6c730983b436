"""A session's log as server-sent events: every event once, in order, to each reader at its own pace."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.api.cursor import StartPosition, encode_cursor
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId, TenantId, ToolCallId
from codesdk.errors import Fault
from codesdk.eventlog.log import CALL_END_TYPES, EventLog
from codesdk.eventlog.tail import Tail
from codesdk.sessions import SessionUnknown
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)

MAX_BUFFERED_EVENTS = 2000
"""Maximum events buffered for a slow reader. Beyond, it is disconnected and can resume with its last id."""
MAX_BUFFERED_BYTES = 4 * 1024**2
"""Maximum bytes of them, likewise."""
HEARTBEAT_S = 15.0
"""Seconds of silence before a comment is sent: proxies and clients close connections after about a minute."""
RECHECK_S = 15.0
"""Seconds between rechecks of the reader's access: its key may be revoked, its tenant suspended."""
SSE_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
SEND_TIMEOUT_S = 30.0
"""Maximum seconds for one write. A reader that accepts nothing for longer is disconnected."""


class EventBuffer:
    """Buffers one reader's live events as frames: filled by the tail's thread, emptied on the event loop."""

    def __init__(self, epoch: str, limit: int, call: ToolCallId | None = None) -> None:
        """`call`: keep only this call's events."""
        self._epoch = epoch
        self._call = call
        self._saw_end = False
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._size = 0
        self._last = 0
        self._wake = asyncio.Event()
        self.overflowed = False
        self.closed = False
        self.fault: Fault | None = None

    def put(self, events: list[Event]) -> None:
        """Add events, or mark the reader as too far behind. Call from any thread."""
        with suppress(RuntimeError):  # the event loop has closed, and its readers with it
            self._loop.call_soon_threadsafe(self._put, events)

    def fail(self, fault: Fault) -> None:
        """End the stream with this fault. Call from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, fault)

    def close(self) -> None:
        """Disconnect the reader. Call on the event loop."""
        self.closed = True
        self._wake.set()

    async def take(self, timeout_s: float) -> tuple[bytes, int]:
        """Return the buffered events' frames, oldest first, and the last event's `seq`.

        Nothing and 0 after `timeout_s` seconds, or if the reader is closed.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return b"", 0
        self._wake.clear()
        taken = b"".join(self._frames), self._last
        self._clear()
        return taken

    def _fail(self, fault: Fault) -> None:
        self.fault = fault
        self._wake.set()

    def _put(self, events: list[Event]) -> None:
        for event in self.select(events):
            if self.overflowed:
                break
            frame = _frame(event, self._epoch)
            self._frames.append(frame)
            self._size += len(frame)
            self._last = event.seq
            # One event is always taken: it may be larger than the buffer.
            if len(self._frames) > self._limit or (self._size > MAX_BUFFERED_BYTES and len(self._frames) > 1):
                self.overflowed = True
                self._clear()
        self._wake.set()

    def select(self, events: list[Event]) -> list[Event]:
        """Return those that this reader gets."""
        if self._call is None:
            return events
        ours = [event for event in events if event.payload.get("tool_call_id") == self._call]
        self._saw_end = self._saw_end or any(event.type in CALL_END_TYPES for event in ours)
        return ours

    def take_end(self) -> bool:
        """Whether an attempt of the call has ended since this was last asked."""
        saw_end, self._saw_end = self._saw_end, False
        return saw_end

    def _clear(self) -> None:
        self._frames, self._size, self._last = [], 0, 0


class CallEnd(NamedTuple):
    """When a stream of one call's events is complete."""

    call: ToolCallId
    reached: Callable[[], bool]
    """Whether the call has ended for good: after a lost attempt, another follows. Reads the database."""


class OpenStream(Protocol):
    """A stream that can be closed."""

    def close(self) -> None:
        """Close the stream. Call on the event loop."""
        ...


class TooManyStreams(Fault):
    """The tenant has as many open streams as it may have at once."""

    code = "TOO_MANY_STREAMS"
    retryable = True
    status = 429
    retry_after_s = HEARTBEAT_S


class OpenStreams:
    """The open streams of this process. Closing them lets the process stop without waiting for its readers."""

    def __init__(self, of_tenant: int) -> None:
        """`of_tenant`: streams that a tenant may have at once; 0: no limit."""
        self._of_tenant = of_tenant
        self._readers: dict[OpenStream, TenantId] = {}

    @contextmanager
    def track(self, reader: OpenStream, tenant: TenantId) -> Iterator[None]:
        """Track a tenant's reader within the block. Use on the event loop, before the response starts.

        Raises:
            TooManyStreams: the tenant has its maximum of open streams.
        """
        if self._of_tenant and sum(other == tenant for other in self._readers.values()) >= self._of_tenant:
            raise TooManyStreams(
                f"The tenant has {self._of_tenant} open streams, and may have no more at once.",
                advice="Close streams that nobody reads, read pages instead, or raise `CODESDK_STREAMS_OF_TENANT`.",
                details={"limit": self._of_tenant},
            )
        self._readers[reader] = tenant
        try:
            yield
        finally:
            del self._readers[reader]

    def close(self) -> None:
        """Disconnect all readers. They reconnect to the next process with their last ids."""
        for reader in self._readers:
            reader.close()


class EventStream(Response):
    """The stream of one reader. Reads the stored log at the reader's pace, then follows the tail."""

    def __init__(
        self,
        *,
        log: EventLog,
        tail: Tail,
        readers: OpenStreams,
        tenant: TenantId,
        session: SessionId,
        begin: StartPosition,
        head: int,
        recheck: Callable[[], object] = lambda: None,
        until: CallEnd | None = None,
        inbox_limit: int = MAX_BUFFERED_EVENTS,
    ) -> None:
        """Create the stream. `begin`: the reader's position; `head`: the log's newest `seq`, sent with a `resync`.

        `recheck` raises if the reader may no longer read. It runs on a thread every `RECHECK_S` seconds. `until`: send
        only this call's events, and end the stream after its last one; None: send all events.
        """
        self.status_code = 200
        self.background = None
        self.init_headers(SSE_HEADERS)
        self._log = log
        self._tail = tail
        self._readers = readers
        self._tenant = tenant
        self._session = session
        self._begin = begin
        self._after = begin.after
        """`seq` of the last event sent."""
        self._head = head
        self._recheck = recheck
        self._until = until
        self._inbox_limit = inbox_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader disconnects or is disconnected."""
        del scope
        inbox = EventBuffer(self._begin.epoch, self._inbox_limit, self._until.call if self._until else None)
        with self._readers.track(inbox, self._tenant):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await stream_to(receive, send, partial(self._write, inbox))

    async def _write(self, inbox: EventBuffer, out: SseWriter) -> None:
        epoch, _, resync = self._begin
        await out.write("retry: 1000\n\n")
        if resync is not None:
            about = {"reason": resync, "epoch": epoch, "head": self._head}
            await out.write(control_frame("resync", about, encode_cursor(epoch, 0)))
        try:
            await self._catch_up(inbox, out)
            if self._until is not None and await to_thread.run_sync(self._until.reached):
                await self._catch_up(inbox, out)  # what was logged since
                inbox.close()
            if inbox.fault is None and not inbox.closed:
                await self._follow(inbox, out)
            if inbox.overflowed:
                waited = f"more than {self._inbox_limit} events or {MAX_BUFFERED_BYTES} bytes waited for this reader"
                await out.write(eviction_frame(f"{waited}; reconnect with your last id", self._cursor()))
            elif inbox.fault is not None:
                await out.write(eviction_frame(inbox.fault.message, self._cursor(), inbox.fault.code))
        except (Unauthenticated, Forbidden, SessionUnknown) as fault:
            await out.write(eviction_frame(f"you may not read this any more: {fault.message}", self._cursor()))
        except Fault as fault:
            # The stream has begun, so it's too late for a status: the reader reconnects and then gets a problem.
            _log.warning("the event stream of %s ended early: %s", self._session, fault)
        await out.end()

    async def _follow(self, inbox: EventBuffer, out: SseWriter) -> None:
        """Send new events as they are committed, until the stream is closed or its last event was sent."""
        subscription = self._tail.subscribe(self._session, self._after, inbox.put, inbox.fail)
        try:
            due = anyio.current_time() + RECHECK_S
            while not (inbox.closed or inbox.overflowed or inbox.fault):
                frames, last = await inbox.take(min(HEARTBEAT_S, max(0.0, due - anyio.current_time())))
                if anyio.current_time() >= due:
                    await to_thread.run_sync(self._recheck)
                    due = anyio.current_time() + RECHECK_S
                await out.write(frames or b": \n\n")
                self._after = last or self._after
                if self._until is not None and inbox.take_end() and await to_thread.run_sync(self._until.reached):
                    inbox.close()
        finally:
            self._tail.unsubscribe(subscription)

    def _cursor(self) -> str:
        return encode_cursor(self._begin.epoch, self._after)

    async def _catch_up(self, inbox: EventBuffer, out: SseWriter) -> None:
        """Send the events that are stored by now."""
        while not inbox.closed:
            events, is_last, fault = await to_thread.run_sync(self._log.page, self._session, self._after)
            if events:
                self._after = events[-1].seq
                await out.write(b"".join(_frame(event, self._begin.epoch) for event in inbox.select(events)))
            if fault is not None:
                inbox.fault = fault
                break
            if is_last:
                break


class SseWriter:
    """Writes to one connection, with a timeout."""

    def __init__(self, send: Send, writing: anyio.CancelScope) -> None:
        self._send = send
        self._writing = writing

    async def write(self, data: str | bytes) -> None:
        """Send text, or encoded text. A reader that doesn't accept it in time is disconnected."""
        body = data if isinstance(data, bytes) else data.encode()
        with anyio.move_on_after(SEND_TIMEOUT_S) as within:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        if within.cancelled_caught:
            self._writing.cancel()

    async def end(self) -> None:
        """End the response."""
        with anyio.move_on_after(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def stream_to(receive: Receive, send: Send, write: Callable[[SseWriter], Awaitable[None]]) -> None:
    """Run `write` until it ends, the reader disconnects, or a write times out."""
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_disconnect, receive, group.cancel_scope)
        with anyio.CancelScope() as writing:
            await write(SseWriter(send, writing))
        group.cancel_scope.cancel()


async def _watch_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    await disconnected(receive)
    scope.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request, whose body was read, disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _frame(event: Event, epoch: str) -> bytes:
    # JSON has no raw line breaks, so it fits into one `data:` line.
    return f"id: {encode_cursor(epoch, event.seq)}\ndata: {event.model_dump_json(exclude_none=True)}\n\n".encode()


def eviction_frame(reason: str, cursor: str, code: str | None = None) -> str:
    """Format the last frame for a reader that is disconnected."""
    return control_frame("evicted", {"reason": reason} | ({"code": code} if code else {}), cursor)


def control_frame(kind: str, about: dict[str, Any], cursor: str) -> str:
    """Format a control frame, which is not an entry of the log, with the reader's position."""
    return f"id: {cursor}\nevent: {kind}\ndata: {json.dumps(about)}\n\n"
