"""Resource subscriptions: notifies clients when a workspace file or the list of artifacts may have changed.

Follows the session's event log while a client is subscribed. A call that names its files changes those; any other call
that may write (a command, say) counts as a change of every subscribed file, because a spurious read costs less than a
missed change. If the workspace is watched, changes by running and background commands are reported too.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent, SubscriptionBus
from mcp.shared.exceptions import MCPError

from codesdk.domain.decisions import Classification
from codesdk.domain.events import Event, EventType
from codesdk.domain.ids import SessionId
from codesdk.domain.payloads import SandboxFilesChanged
from codesdk.domain.subjects import Subject
from codesdk.eventlog.tail import Subscription, Tail
from codesdk.mcphost.server.bearer_auth import subject_of
from codesdk.mcphost.session_resources import uris as resources
from codesdk.mcphost.session_resources.uris import WorkspaceFile
from codesdk.registry import Tool

MAX_SUBSCRIPTIONS = 200
"""Resources that one client may subscribe to."""
NOTIFY_INTERVAL_S = 0.5
"""Minimum seconds between two notifications; changes in between are merged."""
SEND_TIMEOUT_S = 30.0
"""Seconds for a client to accept notifications; after that it loses its subscriptions."""
_MAX_CALLS = 1000
"""Calls in progress per session whose files are tracked."""

_log = logging.getLogger(__name__)
_Context = ServerRequestContext[Any, Any]
FindTool = Callable[[Subject, str], Tool | None]
"""The tool of that name, for the session's tenant."""
EVERY_FILE = frozenset({"/"})
"""Marks every file as changed."""


class _Client(NamedTuple):
    """A subscribed client of the handshake era."""

    session: ServerSession
    uris: set[str]


class _ListenStream(NamedTuple):
    """A listening stream of the newer era."""

    bus: SubscriptionBus
    uris: frozenset[str]
    close: Callable[[], None]


@dataclass
class _WatchedSession:
    """A session with subscribers."""

    subject: Subject
    feed: Subscription | None = None
    clients: dict[Connection, _Client] = field(default_factory=dict)
    """Handshake-era clients. Each of their requests has its own `ServerSession`, so they are keyed by connection."""
    streams: dict[object, _ListenStream] = field(default_factory=dict)
    """Newer-era streams."""
    calls: dict[str, frozenset[str]] = field(default_factory=dict)
    """Calls in progress, with the files they name; an empty set if they change none."""
    changed: set[str] = field(default_factory=set)
    """Pending changes, merged, so that a slow client causes no backlog."""
    listed: bool = False
    notifier: asyncio.Task[None] | None = None


class ResourceSubscriptions:
    """Follows the logs of sessions with subscribers. Used on one event loop."""

    def __init__(self, tail: Tail, head: Callable[[SessionId], int], find_tool: FindTool) -> None:
        """`head`: returns a log's last `seq`."""
        self._tail = tail
        self._head = head
        self._find_tool = find_tool
        self._sessions: dict[str, _WatchedSession] = {}

    @property
    def followed(self) -> int:
        """Number of sessions with subscribers."""
        return len(self._sessions)

    def serve(self, server: Server[Any]) -> None:
        """Register the handlers that handshake-era clients subscribe with."""
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)

    async def listen(
        self, subject: Subject, bus: SubscriptionBus, wanted: types.SubscriptionFilter, close: Callable[[], None]
    ) -> Callable[[], None]:
        """Subscribe a newer-era stream, which is closed at the session's end. Returns the function that unsubscribes it.

        Raises:
            MCPError: it names too many resources.
        """
        named = frozenset(wanted.resource_subscriptions or ())
        if not named and not wanted.resources_list_changed:
            return lambda: None
        if len(named) > MAX_SUBSCRIPTIONS:
            raise _too_many()
        watched, key = await self._session_for(subject), object()
        watched.streams[key] = _ListenStream(bus, named, close)

        def end() -> None:
            watched.streams.pop(key, None)
            self._drop_if_unused(watched)

        return end

    async def _subscribe(self, ctx: _Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        if resources.parse_uri(uri) is None:
            raise MCPError(types.INVALID_PARAMS, "There is no such resource.", data={"uri": uri[:500]})
        watched = await self._session_for(subject_of(ctx.request))
        connection = ctx.session._connection  # noqa: SLF001 (the only key that two requests of a client share)
        if connection not in watched.clients:
            watched.clients[connection] = _Client(ctx.session, set())
            connection.exit_stack.callback(self._drop_client, watched, connection)
        uris = watched.clients[connection].uris
        if len(uris | {uri}) > MAX_SUBSCRIPTIONS:
            raise _too_many()
        uris.add(uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: _Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        watched = self._sessions.get(subject_of(ctx.request).session_id)
        connection = ctx.session._connection  # noqa: SLF001 (as above)
        if watched is not None and (client := watched.clients.get(connection)) is not None:
            client.uris.discard(str(params.uri))
            if not client.uris:
                self._drop_client(watched, connection)
        return types.EmptyResult()

    def _drop_client(self, watched: _WatchedSession, connection: Connection) -> None:
        watched.clients.pop(connection, None)
        self._drop_if_unused(watched)

    async def _session_for(self, subject: Subject) -> _WatchedSession:
        if (found := self._sessions.get(subject.session_id)) is not None:
            return found
        head = await asyncio.to_thread(self._head, subject.session_id)
        watched = self._sessions.setdefault(subject.session_id, _WatchedSession(subject))
        if watched.feed is None:
            loop = asyncio.get_running_loop()

            def on_events(events: list[Event]) -> None:
                loop.call_soon_threadsafe(self._on_events, watched, events)

            watched.feed = self._tail.subscribe(subject.session_id, head, on_events)
        return watched

    def _drop_if_unused(self, watched: _WatchedSession) -> None:
        if not watched.clients and not watched.streams:
            self._end(watched)

    def _end(self, watched: _WatchedSession) -> None:
        if watched.feed is not None:
            self._tail.unsubscribe(watched.feed)
        if self._sessions.get(watched.subject.session_id) is watched:
            del self._sessions[watched.subject.session_id]

    def _on_events(self, watched: _WatchedSession, events: list[Event]) -> None:
        """Record what these events changed, and start the notifier."""
        for event in events:
            call = str(event.payload.get("tool_call_id", ""))
            if event.type is EventType.CALL_REQUESTED:
                self._track_call(watched, call, event)
            elif event.type is EventType.CALL_DENIED:
                watched.calls.pop(call, None)
            elif event.type is EventType.CALL_COMPLETED:
                watched.changed |= watched.calls.pop(call, EVERY_FILE)
                watched.listed = watched.listed or event.payload.get("result_ref") is not None
            elif event.type is EventType.SANDBOX_FILES_CHANGED:
                watched.changed |= _changed_files(event)
            elif event.type is EventType.SANDBOX_SESSION_CLOSED:
                for stream in watched.streams.values():
                    stream.close()
                watched.clients.clear()
                self._end(watched)
                return
        if (watched.changed or watched.listed) and watched.notifier is None:
            watched.notifier = asyncio.create_task(self._notify(watched))

    def _track_call(self, watched: _WatchedSession, call: str, event: Event) -> None:
        tool = self._find_tool(watched.subject, str(event.payload.get("name", "")))
        if tool is not None and tool.classification is Classification.READ_ONLY:
            watched.calls[call] = frozenset()
        elif tool is not None and (paths := _paths(event.payload.get("input"))):
            watched.calls[call] = paths
        # Any other call counts as unknown, like one requested before the first subscription.
        while len(watched.calls) > _MAX_CALLS:
            del watched.calls[next(iter(watched.calls))]

    async def _notify(self, watched: _WatchedSession) -> None:
        """Send pending changes, each resource once, until none are left."""
        try:
            while watched.changed or watched.listed:
                changed, listed = watched.changed, watched.listed
                watched.changed, watched.listed = set(), False
                for connection in list(watched.clients):
                    await self._notify_client(watched, connection, changed)
                buses = {id(stream.bus): stream.bus for stream in watched.streams.values()}
                named = {uri for stream in watched.streams.values() for uri in stream.uris}
                notifications: list[ServerEvent] = [
                    *map(ResourceUpdated, _affected(named, changed)),
                    *([ResourcesListChanged()] if listed else []),
                ]
                for bus in buses.values():
                    for each in notifications:
                        await bus.publish(each)
                await asyncio.sleep(NOTIFY_INTERVAL_S)
        finally:
            watched.notifier = None

    async def _notify_client(self, watched: _WatchedSession, connection: Connection, changed: set[str]) -> None:
        client = watched.clients.get(connection)
        if client is None:
            return
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for uri in _affected(client.uris, changed):
                    await client.session.send_resource_updated(uri)
        except Exception:  # noqa: BLE001 (one client's failure must not affect the others)
            _log.info("could not notify a client of session %s of changes", watched.subject.session_id, exc_info=True)
            self._drop_client(watched, connection)


def _paths(given: Any) -> frozenset[str]:
    """The files that a call's input names; empty if it may change others as well."""
    if not isinstance(given, dict) or not given.keys().isdisjoint({"command", "argv", "patch"}):
        return frozenset()
    named = (given.get(name) for name in ("path", "target", "source", "destination"))
    return frozenset(posixpath.normpath(path) for path in named if isinstance(path, str))


def _changed_files(event: Event) -> frozenset[str]:
    """The files in a workspace watch event; every file if the watch may have missed some."""
    event_payload = SandboxFilesChanged.model_validate(event.payload)
    if event_payload.dropped or event_payload.phase == "begun":
        return EVERY_FILE
    changes = [path for change in event_payload.changes for path in (change.path, change.source) if path is not None]
    return frozenset(map(posixpath.normpath, [*changes, *event_payload.lost]))


def _affected(uris: Iterable[str], changed: set[str]) -> list[str]:
    """The URIs of files in `changed`, or below a directory in it."""
    return [
        uri
        for uri in sorted(uris)
        if isinstance(found := resources.parse_uri(uri), WorkspaceFile) and _is_affected(found, changed)
    ]


def _is_affected(file: WorkspaceFile, changed: set[str]) -> bool:
    path = posixpath.normpath(str(file.arguments["path"]))
    return "/" in changed or any(path == each or path.startswith(f"{each}/") or each == "." for each in changed)


def _too_many() -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"At most {MAX_SUBSCRIPTIONS} resources can be subscribed to.")
