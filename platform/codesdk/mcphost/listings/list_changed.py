"""Notifies clients when their list of tools or prompts changes, because policy or manifests changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged

from codesdk.domain.subjects import Subject
from codesdk.mcphost.server.bearer_auth import subject_of
from codesdk.mcphost.session_resources.subscriptions import ResourceSubscriptions

_log = logging.getLogger(__name__)

POLL_S = 1.0
"""Seconds between checks; policy and manifests are reloaded as often."""

_Context = ServerRequestContext[Any, Any]
ListVersion = Callable[[Subject], Hashable]
"""A cheap version key: if it's equal, so are the lists."""


class ListSnapshot(NamedTuple):
    """A session's lists, as comparable values."""

    tools: Hashable
    prompts: Hashable


ReadLists = Callable[[Subject], ListSnapshot]
"""Reads a session's lists; called in a thread."""


@dataclass
class _SubscribedSession:
    """A session with clients subscribed to list changes."""

    subject: Subject
    version: Hashable
    lists: ListSnapshot
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    """Reaches clients of the newer era, each on the stream that it opened for this."""
    clients: set[ServerSession] = field(default_factory=set)
    """Clients of the handshake era, notified on their standing stream if they have one."""
    streams: int = 0


class ListChangeNotifier:
    """Polls the lists of connected clients' sessions. Used on one event loop."""

    def __init__(
        self, version: ListVersion, read_lists: ReadLists, watching: ResourceSubscriptions, limiter: CapacityLimiter
    ) -> None:
        self._version = version
        self._read_lists = read_lists
        self._watching = watching
        self._limiter = limiter
        self._sessions: dict[str, _SubscribedSession] = {}

    @property
    def followed(self) -> int:
        """Number of sessions with subscribed clients."""
        return len(self._sessions)

    def serve(self, server: Server[Any]) -> None:
        """Register the handlers that clients of both eras subscribe with."""
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._on_initialized)
        server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, self._on_listen)
        plain = server.create_initialization_options

        def with_changes(
            notification_options: NotificationOptions | None = None, *more: Any, **named: Any
        ) -> InitializationOptions:
            # The HTTP manager passes no options, so the capability would not be announced.
            return plain(
                notification_options or NotificationOptions(tools_changed=True, prompts_changed=True), *more, **named
            )

        server.create_initialization_options = with_changes  # type: ignore[method-assign]

    async def watch(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            for entry in list(self._sessions.values()):
                try:
                    await self._notify_if_changed(entry)
                except Exception:  # noqa: BLE001 (one session's failure must not end the polling for all)
                    _log.exception("could not compare the tool lists of session %s", entry.subject.session_id)

    async def _notify_if_changed(self, entry: _SubscribedSession) -> None:
        version = self._version(entry.subject)
        if version == entry.version:
            return
        lists = await to_thread.run_sync(self._read_lists, entry.subject, limiter=self._limiter)
        entry.version = version
        before, entry.lists = entry.lists, lists
        if lists.tools != before.tools:
            await entry.bus.publish(ToolsListChanged())
            for client in list(entry.clients):
                await client.send_tool_list_changed()
        if lists.prompts != before.prompts:
            await entry.bus.publish(PromptsListChanged())
            for client in list(entry.clients):
                await client.send_prompt_list_changed()

    async def _session_for(self, subject: Subject) -> _SubscribedSession:
        version = self._version(subject)
        lists = await to_thread.run_sync(self._read_lists, subject, limiter=self._limiter)
        return self._sessions.setdefault(subject.session_id, _SubscribedSession(subject, version, lists))

    async def _on_initialized(self, ctx: _Context, _params: types.NotificationParams) -> None:
        entry = await self._session_for(subject_of(ctx.request))
        entry.clients.add(ctx.session)

        def on_disconnect() -> None:
            entry.clients.discard(ctx.session)
            self._drop_if_unused(entry)

        # Only the connection's exit stack reports a disconnect; `ctx` belongs to this one notification.
        ctx.session._connection.exit_stack.callback(on_disconnect)  # noqa: SLF001

    async def _on_listen(
        self, ctx: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        entry = await self._session_for(subject_of(ctx.request))
        entry.streams += 1
        listening = ListenHandler(entry.bus)
        try:
            end = await self._watching.listen(entry.subject, entry.bus, params.notifications, listening.close)
            try:
                return await listening(ctx, params)
            finally:
                end()
        finally:
            entry.streams -= 1
            self._drop_if_unused(entry)

    def _drop_if_unused(self, entry: _SubscribedSession) -> None:
        if not entry.clients and not entry.streams:
            self._sessions.pop(entry.subject.session_id, None)
