"""Tells clients that their list of tools or prompts is another than the one they may hold: policy or files changed."""

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
from codesdk.mcphost.access import subject_of
from codesdk.mcphost.watching import Watching

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between looks; policy and manifests are looked at as often."""

_Context = ServerRequestContext[Any, Any]
Version = Callable[[Subject], Hashable]
"""What a session's list is made of, cheap to ask for: where it is the same, so is the list."""


class Lists(NamedTuple):
    """What a session's lists say."""

    tools: Hashable
    prompts: Hashable


Told = Callable[[Subject], Lists]
"""What the lists say; asked for in a thread."""


@dataclass
class _Session:
    """One session with clients that want to hear of changes."""

    subject: Subject
    version: Hashable
    listed: Lists
    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    """For clients of the newer era, each with a stream that it opened for this."""
    clients: set[ServerSession] = field(default_factory=set)
    """Of the handshake era; they hear it on their standing stream, where they have one."""
    streams: int = 0


class Announcer:
    """Watches for the clients that are connected. Used on one event loop."""

    def __init__(self, version: Version, told: Told, watching: Watching, limiter: CapacityLimiter) -> None:
        self._version = version
        self._told = told
        self._watching = watching
        self._limiter = limiter
        self._sessions: dict[str, _Session] = {}

    @property
    def followed(self) -> int:
        """Sessions with clients that want to hear of changes."""
        return len(self._sessions)

    def serve(self, server: Server[Any]) -> None:
        """Add what clients of both eras need to hear it."""
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._greeted)
        server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)
        plain = server.create_initialization_options

        def with_changes(
            notification_options: NotificationOptions | None = None, *more: Any, **named: Any
        ) -> InitializationOptions:
            # The HTTP manager asks without options, so the capability would not be told.
            return plain(
                notification_options or NotificationOptions(tools_changed=True, prompts_changed=True), *more, **named
            )

        server.create_initialization_options = with_changes  # type: ignore[method-assign]

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for known in list(self._sessions.values()):
                try:
                    await self._look(known)
                except Exception:  # noqa: BLE001 (one session's trouble must not end the watch for all)
                    _log.exception("the tools of session %s could not be compared", known.subject.session_id)

    async def _look(self, known: _Session) -> None:
        version = self._version(known.subject)
        if version == known.version:
            return
        listed = await to_thread.run_sync(self._told, known.subject, limiter=self._limiter)
        known.version = version
        before, known.listed = known.listed, listed
        if listed.tools != before.tools:
            await known.bus.publish(ToolsListChanged())
            for client in list(known.clients):
                await client.send_tool_list_changed()
        if listed.prompts != before.prompts:
            await known.bus.publish(PromptsListChanged())
            for client in list(known.clients):
                await client.send_prompt_list_changed()

    async def _known(self, subject: Subject) -> _Session:
        version = self._version(subject)
        listed = await to_thread.run_sync(self._told, subject, limiter=self._limiter)
        return self._sessions.setdefault(subject.session_id, _Session(subject, version, listed))

    async def _greeted(self, ctx: _Context, _params: types.NotificationParams) -> None:
        known = await self._known(subject_of(ctx.request))
        known.clients.add(ctx.session)

        def gone() -> None:
            known.clients.discard(ctx.session)
            self._forget(known)

        # The connection's own end is the only word of it; `ctx` is this one notification's.
        ctx.session._connection.exit_stack.callback(gone)  # noqa: SLF001

    async def _listen(
        self, ctx: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        known = await self._known(subject_of(ctx.request))
        known.streams += 1
        listening = ListenHandler(known.bus)
        try:
            end = await self._watching.listen(known.subject, known.bus, params.notifications, listening.close)
            try:
                return await listening(ctx, params)
            finally:
                end()
        finally:
            known.streams -= 1
            self._forget(known)

    def _forget(self, known: _Session) -> None:
        if not known.clients and not known.streams:
            self._sessions.pop(known.subject.session_id, None)
