"""A tenant's approval feed as server-sent events: each entry once, in order, to each reader at its own pace.

Nothing waits here for a reader: each reads the next page when it has taken the one before, so one that is slow costs a
task, and one that takes nothing within `SEND_S` is gone.
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
from codesdk.approvals.feed import PAGE_SIZE, ApprovalFeed, FeedEntry
from codesdk.domain.ids import TenantId
from codesdk.errors import Fault
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)


class FeedPoller:
    """Wakes readers whose feed has grown: one look at the feeds of all of them each poll, and none while nobody reads."""

    def __init__(self, feeds: ApprovalFeed, poll_s: float) -> None:
        self._feeds = feeds
        self._poll_s = poll_s
        self._waiting: dict[asyncio.Event, tuple[TenantId, int]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, tenant: TenantId, after: int, closed: asyncio.Event, timeout_s: float) -> None:
        """Until the tenant's feed is past `after`, the reader is to go, or the time is over."""
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
                _log.warning("the feeds of approvals could not be looked at: %s", fault)
                continue
            for event, (tenant, after) in list(self._waiting.items()):
                if latest_numbers.get(tenant, 0) > after:
                    event.set()


class _StreamReader:
    """One reader: woken when there is more, or when it is to go."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """On the event loop: let the reader go."""
        self.closed = True
        self.wake.set()


class ApprovalStream(Response):
    """One reader's stream."""

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
        """`begin`: where the reader was; None: it says nothing, and begins at the end. `session`: only of that one.

        `recheck` raises where the reader may read no more; it runs on a thread, every `RECHECK_S` seconds.
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
        """Stream until the reader goes, or is sent away."""
        del scope
        place = _StreamReader()
        with self._readers.track(place):
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
                if len(news) < PAGE_SIZE and not place.closed:
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
            # The stream has begun, so no status can say it: the reader comes back and then gets a problem.
            _log.warning("the approvals' stream of %s ends early: %s", self._tenant, fault)
        with suppress(OSError):
            await out.end()

    async def _start(self, out: SseWriter) -> tuple[str, int]:
        """Tell the reader where it is, where it could not know; then it lists what waits, and misses nothing."""
        epoch, last = await to_thread.run_sync(self._feeds.place, self._tenant)
        if self._begin is not None and self._begin.resync is None:
            return self._begin.epoch, self._begin.after
        kind, about = "start", {"epoch": epoch, "head": last}
        if self._begin is not None:
            kind, about = "resync", {**about, "reason": self._begin.resync}
        await out.write(control_frame(kind, about, encode_cursor(epoch, last)))
        return epoch, last

    def _frame(self, news: FeedEntry, epoch: str) -> str:
        """One of another session is passed over; its number is not, so that a reader that comes back begins after it."""
        cursor = encode_cursor(epoch, news.number)
        if self._session is not None and news.approval.session_id != self._session:
            return f"id: {cursor}\n: \n\n"
        return f"id: {cursor}\nevent: approval.{news.kind}\ndata: {news.model_dump_json(exclude_none=True)}\n\n"
