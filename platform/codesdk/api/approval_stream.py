"""A tenant's approval feed as server-sent events: every entry once, in order, at each reader's pace.

Readers pull: each fetches its next page after sending the previous one. A slow reader costs one task, and one that
accepts nothing within `SEND_S` is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.api.cursor import StartPosition, encode_cursor
from codesdk.api.event_stream import (
    HEARTBEAT_S,
    RECHECK_S,
    SSE_HEADERS,
    OpenStreams,
    SseWriter,
    control_frame,
    eviction_frame,
    stream_to,
)
from codesdk.approvals.feed import ApprovalFeed, FeedEntry
from codesdk.domain.ids import TenantId
from codesdk.errors import Fault
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)


class FeedPoller:
    """Wakes readers whose feed has grown. One query per poll for all of them; none while nobody waits."""

    def __init__(self, feeds: ApprovalFeed, poll_s: float) -> None:
        self._feeds = feeds
        self._poll_s = poll_s
        self._waiting: dict[asyncio.Event, tuple[TenantId, int]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, tenant: TenantId, after: int, closed: asyncio.Event, timeout_s: float) -> None:
        """Wait until the feed is past `after`, the reader is closed, or the timeout ends."""
        self._waiting[closed] = (tenant, after)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(timeout_s):
                await closed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(closed, None)

    async def _poll(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._poll_s)
            tenants = {tenant for tenant, _ in self._waiting.values()}
            try:
                latest_numbers = await to_thread.run_sync(self._feeds.latest_numbers, tenants) if tenants else {}
            except Fault as fault:
                _log.warning("could not poll the approval feeds: %s", fault)
                continue
            for event, (tenant, after) in list(self._waiting.items()):
                if latest_numbers.get(tenant, 0) > after:
                    event.set()


class _StreamReader:
    """One reader. Its event is set when there are new entries or it must disconnect."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """Disconnect the reader. Call on the event loop."""
        self.closed = True
        self.wake.set()


class ApprovalStream(Response):
    """The stream of one reader."""

    def __init__(
        self,
        *,
        feeds: ApprovalFeed,
        poller: FeedPoller,
        readers: OpenStreams,
        tenant: TenantId,
        begin: StartPosition | None,
        session: str | None,
        recheck: Callable[[], object],
    ) -> None:
        """Create the stream. `begin`: the reader's position; None: the current end. `session`: only its entries.

        `recheck` raises if the reader may no longer read. It runs on a thread every `RECHECK_S` seconds.
        """
        self.status_code = 200
        self.background = None
        self.init_headers(SSE_HEADERS)
        self._feeds = feeds
        self._poller = poller
        self._readers = readers
        self._tenant = tenant
        self._begin = begin
        self._session = session
        self._recheck = recheck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader disconnects or is disconnected."""
        del scope
        place = _StreamReader()
        with self._readers.track(place, self._tenant):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await stream_to(receive, send, partial(self._write, place))

    async def _write(self, place: _StreamReader, out: SseWriter) -> None:
        await out.write("retry: 1000\n\n")
        epoch, after = "", 0
        try:
            epoch, after = await self._start(out)
            due = anyio.current_time() + RECHECK_S
            while not place.closed:
                if anyio.current_time() >= due:
                    await to_thread.run_sync(self._recheck)
                    due = anyio.current_time() + RECHECK_S
                news = await to_thread.run_sync(self._feeds.page, self._tenant, after)
                if news:
                    after = news[-1].number
                    await out.write("".join(self._frame(each, epoch) for each in news))
                if not news and not place.closed:
                    quiet = min(HEARTBEAT_S, max(0.0, due - anyio.current_time()))
                    await self._poller.wait(self._tenant, after, place.wake, quiet)
                    if not place.wake.is_set():
                        await out.write(": \n\n")
                    place.wake.clear()
        except (Unauthenticated, Forbidden) as fault:
            await out.write(
                eviction_frame(f"you may not read this any more: {fault.message}", encode_cursor(epoch, after))
            )
        except Fault as fault:
            # The stream has begun, so it's too late for a status: the reader reconnects and then gets a problem.
            _log.warning("the approval stream of %s ended early: %s", self._tenant, fault)
        with suppress(OSError):
            await out.end()

    async def _start(self, out: SseWriter) -> tuple[str, int]:
        """Send the starting position if the reader has none. It can then list pending approvals without missing any."""
        epoch, last = await to_thread.run_sync(self._feeds.place, self._tenant)
        if self._begin is not None and self._begin.resync is None:
            return self._begin.epoch, self._begin.after
        kind, about = "start", {"epoch": epoch, "head": last}
        if self._begin is not None:
            kind, about = "resync", {**about, "reason": self._begin.resync}
        await out.write(control_frame(kind, about, encode_cursor(epoch, last)))
        return epoch, last

    def _frame(self, news: FeedEntry, epoch: str) -> str:
        """Format an entry. For another session's entry, send only the number, so that the reader's position advances."""
        cursor = encode_cursor(epoch, news.number)
        if self._session is not None and news.approval.session_id != self._session:
            return f"id: {cursor}\n: \n\n"
        return f"id: {cursor}\nevent: approval.{news.kind}\ndata: {news.model_dump_json(exclude_none=True)}\n\n"
