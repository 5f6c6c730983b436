"""A session's log as server-sent events: every event once, in order, to each reader at its own pace."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.api.cursor import StartPosition, encode_cursor
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId
from codesdk.errors import Fault
from codesdk.eventlog.log import PAGE_SIZE, EventLog
from codesdk.eventlog.tail import Tail
from codesdk.sessions import SessionUnknown
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)

MAX_BUFFERED_EVENTS = 2000
"""Events kept for a reader that is behind; past that it is sent away, and comes back with its last id."""
HEARTBEAT_S = 15.0
"""Seconds of silence before a comment: proxies and clients end connections that are silent for about a minute."""
RECHECK_S = 15.0
"""Seconds after which it is asked again whether the reader may still read: a revoked key, a suspended tenant."""
SSE_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
SEND_TIMEOUT_S = 30.0
"""Seconds that one write may take; a reader that takes nothing for so long is gone."""


class EventBuffer:
    """The live events of one reader: filled from the tail's thread, emptied on the event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self.overflowed = False
        self.closed = False
        self.fault: Fault | None = None

    def put(self, events: list[Event]) -> None:
        """From any thread: hand over events, or give the reader up where it is too far behind."""
        with suppress(RuntimeError):  # the loop has closed, and its readers with it
            self._loop.call_soon_threadsafe(self._put, events)

    def fail(self, fault: Fault) -> None:
        """From any thread: nothing more comes, for this reason."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, fault)

    def close(self) -> None:
        """On the event loop: let the reader go."""
        self.closed = True
        self._wake.set()

    async def take(self, timeout_s: float) -> list[Event]:
        """What has come, oldest first; empty after `timeout_s` seconds, or where the reader is to go."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        taken = list(self._events)
        self._events.clear()
        return taken

    def _fail(self, fault: Fault) -> None:
        self.fault = fault
        self._wake.set()

    def _put(self, events: list[Event]) -> None:
        if self.overflowed or len(self._events) + len(events) > self._limit:
            self.overflowed = True
            self._events.clear()
        else:
            self._events.extend(events)
        self._wake.set()


class OpenStream(Protocol):
    """One that can be let go."""

    def close(self) -> None:
        """On the event loop: let it go."""
        ...


class OpenStreams:
    """The open streams of this process, so that stopping it does not wait for readers that never leave."""

    def __init__(self) -> None:
        self._readers: set[OpenStream] = set()

    @contextmanager
    def track(self, reader: OpenStream) -> Iterator[None]:
        """A reader is there while the block lasts."""
        self._readers.add(reader)
        try:
            yield
        finally:
            self._readers.discard(reader)

    def close(self) -> None:
        """Let all of them go; they come back to the next process with their last ids."""
        for reader in self._readers:
            reader.close()


class EventStream(Response):
    """One reader's stream. What is already in the log is read at the reader's pace; then it follows the tail."""

    def __init__(
        self,
        *,
        log: EventLog,
        tail: Tail,
        readers: OpenStreams,
        session: SessionId,
        begin: StartPosition,
        head: int,
        recheck: Callable[[], object] = lambda: None,
        inbox_limit: int = MAX_BUFFERED_EVENTS,
    ) -> None:
        """`begin`: where the reader starts; `head`: the log's newest `seq`, told with a `resync`.

        `recheck` raises where the reader may read no more; it runs on a thread, every `RECHECK_S` seconds.
        """
        self.status_code = 200
        self.background = None
        self.init_headers(SSE_HEADERS)
        self._log = log
        self._tail = tail
        self._readers = readers
        self._session = session
        self._begin = begin
        self._head = head
        self._recheck = recheck
        self._inbox_limit = inbox_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader goes, or is sent away."""
        del scope
        inbox = EventBuffer(self._inbox_limit)
        with self._readers.track(inbox):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await stream_to(receive, send, partial(self._write, inbox))

    async def _write(self, inbox: EventBuffer, out: SseWriter) -> None:
        epoch, after, resync = self._begin
        await out.write("retry: 1000\n\n")
        if resync is not None:
            about = {"reason": resync, "epoch": epoch, "head": self._head}
            await out.write(control_frame("resync", about, encode_cursor(epoch, 0)))
        subscription = None
        try:
            after = await self._catch_up(inbox, out, after)
            if inbox.fault is None:
                subscription = self._tail.subscribe(self._session, after, inbox.put, inbox.fail)
            due = anyio.current_time() + RECHECK_S
            while not (inbox.closed or inbox.overflowed or inbox.fault):
                events = await inbox.take(min(HEARTBEAT_S, max(0.0, due - anyio.current_time())))
                if anyio.current_time() >= due:
                    await to_thread.run_sync(self._recheck)
                    due = anyio.current_time() + RECHECK_S
                await out.write("".join(_frame(event, epoch) for event in events) or ": \n\n")
                after = events[-1].seq if events else after
            if inbox.overflowed:
                waited = f"more than {self._inbox_limit} events waited for this reader"
                await out.write(eviction_frame(f"{waited}; come back with your last id", encode_cursor(epoch, after)))
            elif inbox.fault is not None:
                await out.write(eviction_frame(inbox.fault.message, encode_cursor(epoch, after), inbox.fault.code))
        except (Unauthenticated, Forbidden, SessionUnknown) as fault:
            await out.write(
                eviction_frame(f"you may not read this any more: {fault.message}", encode_cursor(epoch, after))
            )
        except Fault as fault:
            # The stream has begun, so no status can say it: the reader comes back and then gets a problem.
            _log.warning("the stream of %s ends early: %s", self._session, fault)
        finally:
            if subscription is not None:
                self._tail.unsubscribe(subscription)
        await out.end()

    async def _catch_up(self, inbox: EventBuffer, out: SseWriter, after: int) -> int:
        while not inbox.closed:
            events, fault = await to_thread.run_sync(self._log.page, self._session, after)
            if events:
                after = events[-1].seq
                await out.write("".join(_frame(event, self._begin.epoch) for event in events))
            if fault is not None:
                inbox.fault = fault
                break
            if len(events) < PAGE_SIZE:
                break
        return after


class SseWriter:
    """Writes to one connection, within a time."""

    def __init__(self, send: Send, writing: anyio.CancelScope) -> None:
        self._send = send
        self._writing = writing

    async def write(self, text: str) -> None:
        """Send it; a reader that does not take it in time is gone."""
        with anyio.move_on_after(SEND_TIMEOUT_S) as within:
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        if within.cancelled_caught:
            self._writing.cancel()

    async def end(self) -> None:
        """Nothing more comes."""
        with anyio.move_on_after(SEND_TIMEOUT_S):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def stream_to(receive: Receive, send: Send, write: Callable[[SseWriter], Awaitable[None]]) -> None:
    """Let `write` write until it has ended, the reader is gone, or it takes nothing more."""
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_disconnect, receive, group.cancel_scope)
        with anyio.CancelScope() as writing:
            await write(SseWriter(send, writing))
        group.cancel_scope.cancel()


async def _watch_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _frame(event: Event, epoch: str) -> str:
    # JSON has no raw line breaks, so one `data:` line holds it.
    return f"id: {encode_cursor(epoch, event.seq)}\ndata: {event.model_dump_json(exclude_none=True)}\n\n"


def eviction_frame(reason: str, cursor: str, code: str | None = None) -> str:
    """The last frame of a reader that is sent away."""
    return control_frame("evicted", {"reason": reason} | ({"code": code} if code else {}), cursor)


def control_frame(kind: str, about: dict[str, Any], cursor: str) -> str:
    """A frame that is no event of what is followed, and where its reader then is."""
    return f"id: {cursor}\nevent: {kind}\ndata: {json.dumps(about)}\n\n"
