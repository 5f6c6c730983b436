"""A tenant's news of approvals as server-sent events: each once, in order, to each reader at its own pace.

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

from codesdk.api.cursor import Start, encode
from codesdk.api.stream import (
    HEARTBEAT_S,
    RECHECK_S,
    SSE_HEADERS,
    Pen,
    Readers,
    control,
    evicted,
    written,
)
from codesdk.approvals.news import PAGE, Feeds, News
from codesdk.domain.ids import TenantId
from codesdk.errors import Fault
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)


class Bell:
    """Wakes readers whose feed has grown: one look at the feeds of all of them each poll, and none while nobody reads."""

    def __init__(self, feeds: Feeds, poll_s: float) -> None:
        self._feeds = feeds
        self._poll_s = poll_s
        self._waiting: dict[asyncio.Event, tuple[TenantId, int]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, tenant: TenantId, after: int, closed: asyncio.Event, timeout_s: float) -> None:
        """Until the tenant's feed is past `after`, the reader is to go, or the time is over."""
        self._waiting[closed] = (tenant, after)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(timeout_s):
                await closed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.pop(closed, None)

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._poll_s)
            tenants = {tenant for tenant, _ in self._waiting.values()}
            try:
                lasts = await to_thread.run_sync(self._feeds.lasts, tenants) if tenants else {}
            except Fault as fault:
                _log.warning("the feeds of approvals could not be looked at: %s", fault)
                continue
            for event, (tenant, after) in list(self._waiting.items()):
                if lasts.get(tenant, 0) > after:
                    event.set()


class _Place:
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
        feeds: Feeds,
        bell: Bell,
        readers: Readers,
        tenant: TenantId,
        begin: Start | None,
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
        self._bell = bell
        self._readers = readers
        self._tenant = tenant
        self._begin = begin
        self._session = session
        self._recheck = recheck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader goes, or is sent away."""
        del scope
        place = _Place()
        with self._readers.there(place):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await written(receive, send, partial(self._write, place))

    async def _write(self, place: _Place, pen: Pen) -> None:
        await pen.write("retry: 1000\n\n")
        epoch, after = "", 0
        try:
            epoch, after = await self._start(pen)
            due = anyio.current_time() + RECHECK_S
            while not place.closed:
                if anyio.current_time() >= due:
                    await to_thread.run_sync(self._recheck)
                    due = anyio.current_time() + RECHECK_S
                news = await to_thread.run_sync(self._feeds.page, self._tenant, after)
                if news:
                    after = news[-1].number
                    await pen.write("".join(self._frame(each, epoch) for each in news))
                if len(news) < PAGE and not place.closed:
                    quiet = min(HEARTBEAT_S, max(0.0, due - anyio.current_time()))
                    await self._bell.wait(self._tenant, after, place.wake, quiet)
                    if not place.wake.is_set():
                        await pen.write(": \n\n")
                    place.wake.clear()
        except (Unauthenticated, Forbidden) as fault:
            await pen.write(evicted(f"you may not read this any more: {fault.message}", encode(epoch, after)))
        except Fault as fault:
            # The stream has begun, so no status can say it: the reader comes back and then gets a problem.
            _log.warning("the approvals' stream of %s ends early: %s", self._tenant, fault)
        with suppress(OSError):
            await pen.end()

    async def _start(self, pen: Pen) -> tuple[str, int]:
        """Tell the reader where it is, where it could not know; then it lists what waits, and misses nothing."""
        epoch, last = await to_thread.run_sync(self._feeds.place, self._tenant)
        if self._begin is not None and self._begin.resync is None:
            return self._begin.epoch, self._begin.after
        kind, about = "start", {"epoch": epoch, "head": last}
        if self._begin is not None:
            kind, about = "resync", {**about, "reason": self._begin.resync}
        await pen.write(control(kind, about, encode(epoch, last)))
        return epoch, last

    def _frame(self, news: News, epoch: str) -> str:
        """One of another session is passed over; its number is not, so that a reader that comes back begins after it."""
        cursor = encode(epoch, news.number)
        if self._session is not None and news.approval.session_id != self._session:
            return f"id: {cursor}\n: \n\n"
        return f"id: {cursor}\nevent: approval.{news.kind}\ndata: {news.model_dump_json(exclude_none=True)}\n\n"
