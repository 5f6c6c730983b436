"""Lifecycle of one MCP server: started on demand, restarted with backoff, and stopped when idle."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.registry import Source
from codesdk.sources.faults import SourceUnavailable
from codesdk.sources.servers.connection import OpenStreams, ServerConnection
from codesdk.sources.servers.event_loop import EventLoopThread
from codesdk.sources.servers.server_status import ServerState
from codesdk.sources.tool_changes import ToolListing

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

FIRST_BACKOFF_S = 1.0
"""Seconds before the second retry; doubled for each further one. The first retry is immediate."""
MAX_BACKOFF_S = 60.0
STABLE_AFTER_S = 60.0
"""Seconds of uptime after which the failure count resets."""
LOOP_SLACK_S = 5.0
"""Seconds for the event loop, beyond the server's own timeout."""


class StartedServer(NamedTuple):
    """A server that was started."""

    open_streams: OpenStreams
    release: Callable[[], None]
    """Releases the server's sandbox or connection."""


@dataclass
class RunningServer:
    """A server with an open connection."""

    conversation: ServerConnection
    done: Future[None]
    since: float
    """Start time, monotonic seconds."""
    started_at: float
    """Start time, seconds since the epoch."""
    release: Callable[[], None]
    """Releases the server's sandbox or connection."""


class StatusSnapshot(NamedTuple):
    """A server's status; fields as in `ServerStatus`."""

    state: ServerState
    since: float | None
    restarts: int
    reason: str


class Server:
    """One server, for a session or shared. Its methods are called from the worker's threads."""

    def __init__(
        self,
        source: Source,
        begin: Callable[[], StartedServer],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_listing: Callable[[ToolListing], None],
    ) -> None:
        """`begin`: starts the server. `on_listing`: called on a thread with each tool list; must not raise."""
        self.source = source
        self._begin = begin
        self._loop = loop
        self._clock = clock
        self._on_listing = on_listing
        self._lock = threading.RLock()
        self._running: RunningServer | None = None
        self._failures = 0
        self._starts = 0
        self._last_failure = ""
        self._not_before = 0.0
        self._calls_lock = threading.Lock()
        self._calls = 0
        self._last_used = clock.monotonic()
        self._closed = ""

    def ready(self) -> RunningServer:
        """The running server, started if necessary.

        Raises:
            SourceUnavailable: it doesn't start, or the backoff isn't over.
            Fault: its sandbox couldn't be created.
        """
        with self._lock:
            if self._closed:
                raise SourceUnavailable(self.source.name, self._closed)
            if self._running is not None and not self._running.conversation.reason:
                return self._running
            if self._running is not None:
                self._on_exit(self._running)
            left = self._not_before - self._clock.monotonic()
            if left > 0:
                raise SourceUnavailable(
                    self.source.name,
                    f"{self._last_failure}; the next start is in {max(1, round(left))} s at the earliest",
                )
            try:
                self._running = self._start()
            except Fault as fault:
                self._failed(fault.what if isinstance(fault, SourceUnavailable) else fault.message)
                raise
            return self._running

    def call(
        self, running: RunningServer, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: ProgressFnT
    ) -> Future[types.CallToolResult]:
        """Send a call; cancelling the future cancels it."""
        work = running.conversation.call(tool, arguments, timeout_s, on_progress)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_started(self) -> None:
        """Count a call: the server is not idle until `call_finished`."""
        with self._calls_lock:
            self._calls += 1

    def call_finished(self) -> None:
        """Count the end of a call."""
        with self._calls_lock:
            self._calls -= 1
            self._last_used = self._clock.monotonic()

    def stop_if_idle(self) -> bool:
        """Stop the server if it is idle; returns whether it is stopped and may be dropped."""
        if not self._lock.acquire(blocking=False):
            return False  # it is being started for a call
        try:
            if self._running is not None and self._running.conversation.reason:
                self._on_exit(self._running)
            idle = self._clock.monotonic() - self._last_used
            if self._running is not None and not self._calls and idle >= self.source.manifest.idle_s:
                _log.info("stopped the MCP server %s: no call for %g s", self.source.name, idle)
                self._stop("was stopped: it was idle")
            return self._running is None and not self._calls and self._can_forget()
        finally:
            self._lock.release()

    def close(self, reason: str, *, wait: bool = True) -> bool:
        """Stop the server permanently. Returns False if it is being started and `wait` is not set: it then takes no calls."""
        self._closed = self._closed or reason
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            self._stop(reason)
        finally:
            self._lock.release()
        return True

    def status(self) -> StatusSnapshot:
        """The current status. Takes no lock, because the server may be starting."""
        running = self._running
        if running is None:
            state = ServerState.STARTING if self._calls else ServerState.ENDED
        else:
            state = ServerState.ENDED if running.conversation.reason else ServerState.RUNNING
        reason = (running.conversation.reason if running is not None else "") or self._last_failure
        since = running.started_at if running is not None else None
        return StatusSnapshot(state, since, max(0, self._starts - 1), reason)

    @property
    def is_busy(self) -> bool:
        """Whether it has calls in flight."""
        return self._calls > 0

    def _can_forget(self) -> bool:
        """Whether its failure count may be dropped without shortening the backoff."""
        return not self._failures or self._clock.monotonic() - self._not_before >= MAX_BACKOFF_S

    def _start(self) -> RunningServer:
        self._starts += 1
        open_streams, release = self._begin()
        manifest = self.source.manifest
        try:

            async def open_() -> ServerConnection:
                return ServerConnection(
                    manifest.name, open_streams, start_s=manifest.start_s, on_listing=self._on_listing
                )

            conversation = self._run_on_loop(open_(), LOOP_SLACK_S)
            done = asyncio.run_coroutine_threadsafe(conversation.run(), self._loop)

            async def listed() -> ToolListing:
                return await asyncio.shield(conversation.listing)

            try:
                listing = self._run_on_loop(listed(), manifest.start_s + LOOP_SLACK_S)
            except BaseException:
                done.cancel()
                raise
        except TimeoutError as error:
            release()
            raise SourceUnavailable(manifest.name, f"did not start within {manifest.start_s:g} s") from error
        except BaseException:
            release()
            raise
        _log.info("started the MCP server %s: %s, %d tools", manifest.name, listing.server, len(listing.tools))
        self._on_listing(listing)
        return RunningServer(conversation, done, self._clock.monotonic(), self._clock.now().timestamp(), release)

    def _stop(self, reason: str) -> None:
        if self._running is None:
            return
        running, self._running = self._running, None
        running.conversation.end(reason)
        self._release(running)

    def _on_exit(self, running: RunningServer) -> None:
        """Handle a server that ended by itself."""
        self._running = None
        if self._clock.monotonic() - running.since >= STABLE_AFTER_S:
            self._failures = 0
        self._failed(running.conversation.reason)
        self._release(running)

    def _release(self, running: RunningServer) -> None:
        try:
            running.done.result(LOOP_SLACK_S)
        except Exception:  # noqa: BLE001 (the sandbox is released in any case)
            running.done.cancel()
            _log.warning("the connection to the MCP server %s did not close in time", self.source.name)
        running.release()

    def _failed(self, why: str) -> None:
        self._last_failure = why
        self._failures += 1
        backoff = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (self._failures - 2)) if self._failures > 1 else 0.0
        self._not_before = self._clock.monotonic() + backoff
        _log.warning("the MCP server %s %s", self.source.name, why)

    def _run_on_loop(self, work: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise


def list_offered_tools(source: Source, begin: Callable[[], StartedServer], clock: Clock) -> ToolListing:
    """Start a server, list its tools, and stop it.

    Raises:
        SourceUnavailable: it didn't start, or violated the protocol.
        Fault: its sandbox couldn't be created.
    """
    thread = EventLoopThread("codesdk-ask-source")
    server = Server(source, begin, loop=thread.loop, clock=clock, on_listing=lambda _: None)
    try:
        return server.ready().conversation.latest
    finally:
        server.close("was stopped: it has answered")
        thread.close()
