"""Resource subscriptions: clients are told that a file of the workspace, or the list of artifacts, may have changed.

What changes them are tool calls, so the session's log is followed, and only while somebody has subscribed. A call that
names its files changes those; any other call that may write (a command, say) is taken to have changed every file that is
subscribed to: a client that reads once more for nothing loses less than one that does not know. Where the workspace is
watched, what changes while a command runs, or in the background, is told too.
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
"""Addresses that one client may subscribe to."""
NOTIFY_INTERVAL_S = 0.5
"""Least seconds between two tellings: what changes in between is told once, however often it changed."""
SEND_TIMEOUT_S = 30.0
"""Seconds in which a client must take what it is told; then it has no subscriptions any more."""
_MAX_CALLS = 1000
"""Calls of a session whose files are remembered until they end."""

_log = logging.getLogger(__name__)
_Context = ServerRequestContext[Any, Any]
FindTool = Callable[[Subject, str], Tool | None]
"""The tool of that name, for the session's tenant."""
EVERY_FILE = frozenset({"/"})
"""Stands for every file."""


class _Client(NamedTuple):
    """A client that has subscribed."""

    session: ServerSession
    uris: set[str]


class _ListenStream(NamedTuple):
    """A client that listens."""

    bus: SubscriptionBus
    uris: frozenset[str]
    close: Callable[[], None]


@dataclass
class _WatchedSession:
    """One session that somebody watches."""

    subject: Subject
    feed: Subscription | None = None
    clients: dict[Connection, _Client] = field(default_factory=dict)
    """Of the handshake era; each of their requests has a `ServerSession` of its own."""
    streams: dict[object, _ListenStream] = field(default_factory=dict)
    """Of the newer era."""
    calls: dict[str, frozenset[str]] = field(default_factory=dict)
    """Calls under way, and the files that they name; none in the set: they change none."""
    changed: set[str] = field(default_factory=set)
    """What is still to be told, so that a client that reads slowly makes nothing pile up."""
    listed: bool = False
    notifier: asyncio.Task[None] | None = None


class ResourceSubscriptions:
    """Follows the sessions that somebody watches. Used on one event loop; only `_arrived` runs on the tail's thread."""

    def __init__(self, tail: Tail, head: Callable[[SessionId], int], find_tool: FindTool) -> None:
        """`head`: the log's last `seq` now."""
        self._tail = tail
        self._head = head
        self._find_tool = find_tool
        self._sessions: dict[str, _WatchedSession] = {}

    @property
    def followed(self) -> int:
        """Sessions that somebody watches."""
        return len(self._sessions)

    def serve(self, server: Server[Any]) -> None:
        """Add what clients of the handshake era subscribe with."""
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)

    async def listen(
        self, subject: Subject, bus: SubscriptionBus, wanted: types.SubscriptionFilter, close: Callable[[], None]
    ) -> Callable[[], None]:
        """Tell a stream of the newer era; closed by us at the session's end; gives what ends it.

        Raises:
            MCPError: it names too many addresses.
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
        connection = ctx.session._connection  # noqa: SLF001 (nothing else says that two requests are one client's)
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
        """Note what these events changed, and see that it is told."""
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
        # Any other is one of which nothing is known, as one that was requested before anybody watched.
        while len(watched.calls) > _MAX_CALLS:
            del watched.calls[next(iter(watched.calls))]

    async def _notify(self, watched: _WatchedSession) -> None:
        """Tell what changed, each address once, until nothing is left to tell."""
        try:
            while watched.changed or watched.listed:
                changed, listed = watched.changed, watched.listed
                watched.changed, watched.listed = set(), False
                for connection in list(watched.clients):
                    await self._notify_client(watched, connection, changed)
                buses = {id(stream.bus): stream.bus for stream in watched.streams.values()}
                named = {uri for stream in watched.streams.values() for uri in stream.uris}
                told: list[ServerEvent] = [
                    *map(ResourceUpdated, _affected(named, changed)),
                    *([ResourcesListChanged()] if listed else []),
                ]
                for bus in buses.values():
                    for each in told:
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
        except Exception:  # noqa: BLE001 (one client's trouble must not keep the others from hearing)
            _log.info("a client of session %s cannot be told of changes", watched.subject.session_id, exc_info=True)
            self._drop_client(watched, connection)


def _paths(given: Any) -> frozenset[str]:
    """The files that a call's input names as such; none where it may change others as well."""
    if not isinstance(given, dict) or not given.keys().isdisjoint({"command", "argv", "patch"}):
        return frozenset()
    named = (given.get(name) for name in ("path", "target", "source", "destination"))
    return frozenset(posixpath.normpath(path) for path in named if isinstance(path, str))


def _changed_files(event: Event) -> frozenset[str]:
    """The files that a watched workspace tells of; every file where it may have missed some."""
    told = SandboxFilesChanged.model_validate(event.payload)
    if told.dropped or told.phase == "begun":
        return EVERY_FILE
    changes = [path for change in told.changes for path in (change.path, change.source) if path is not None]
    return frozenset(map(posixpath.normpath, [*changes, *told.lost]))


def _affected(uris: Iterable[str], changed: set[str]) -> list[str]:
    """The addresses of files among `changed`, or beneath a directory there."""
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
