"""The connection to one MCP server, from the handshake to its end. Everything here runs on the sources' event loop.

The client offers no capabilities: no sampling, elicitation or roots. Tool descriptions are compared with the accepted ones,
and never shown to agents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from codesdk.registry.pins import MAX_TOOLS, OfferedTool
from codesdk.sources.faults import SourceDied, SourceFault, SourceProtocolError, SourceTimeout, SourceUnavailable
from codesdk.sources.tool_changes import ToolListing

_log = logging.getLogger(__name__)

MAX_PAGES = 64
"""Pages of a tool list."""
RELIST_S = 2.0
"""Minimum seconds between two tool lists after change notifications."""
CLIENT_INFO = types.Implementation(name="codesdk", version=version("codesdk"))
OnEnd = Callable[[str], None]
OpenStreams = Callable[[OnEnd], AbstractAsyncContextManager[Any]]
"""Opens the streams to the server; the function is called with the reason when they end by themselves."""


class ServerConnection:
    """One MCP client session. Used on one event loop; `end` from any thread."""

    def __init__(
        self,
        name: str,
        open_streams: OpenStreams,
        *,
        start_s: float,
        on_listing: Callable[[ToolListing], None] = lambda _: None,
    ) -> None:
        """`on_listing`: called on a thread with each tool list after the first; must not raise."""
        self._name = name
        self._open_streams = open_streams
        self._start_s = start_s
        self._on_listing = on_listing
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self._stale = asyncio.Event()
        self._session: ClientSession | None = None
        self.reason = ""
        """Why the connection ended; empty while it is open."""
        self.listing: asyncio.Future[ToolListing] = self._loop.create_future()
        """The first tool list, or the fault that prevented it."""
        self.latest = ToolListing("", (), {})
        """The latest tool list."""

    async def run(self) -> None:
        """Run the session until `end` or the server ends it."""
        try:
            async with (
                self._open_streams(self._close) as streams,
                ClientSession(
                    streams[0], streams[1], message_handler=self._on_message, client_info=CLIENT_INFO
                ) as session,
            ):
                if await self._handshake(session):
                    async with asyncio.TaskGroup() as tasks:
                        watching = tasks.create_task(self._watch_tools(session))
                        await self._closed.wait()
                        watching.cancel()
        except asyncio.CancelledError:
            self._close("was stopped")
        except BaseExceptionGroup as group:
            _log.info("the connection to %s failed: %r", self._name, group)
            self._close(f"cannot be reached: {_short(_first_exception(group))}")
        except Exception as error:  # noqa: BLE001 (callers get the reason)
            _log.exception("the connection to %s failed", self._name)
            self._close(f"cannot be reached: {_short(error)}")
        finally:
            self._session = None
            self._close("ended")
            if not self.listing.done():
                self.listing.set_exception(SourceUnavailable(self._name, self.reason))
                self.listing.exception()  # avoids a warning if nobody waits

    async def _handshake(self, session: ClientSession) -> bool:
        """Initialize the session and read the first tool list; False on failure."""
        try:
            async with asyncio.timeout(self._start_s):
                await session.initialize()
                listing = await self._list(session)
        except TimeoutError:
            self._close(f"did not answer the handshake within {self._start_s:g} s")
        except SourceFault as fault:
            self._close(fault.what)
        except (MCPError, ValidationError, RuntimeError, ValueError) as error:
            self._close(f"violated the protocol: {_short(error)}")
        else:
            self._session, self.latest = session, listing
            self.listing.set_result(listing)
            return True
        return False

    def end(self, reason: str) -> None:
        """End the connection; from any thread."""
        self._loop.call_soon_threadsafe(self._close, reason)

    async def call(
        self, tool: str, arguments: dict[str, Any], timeout_s: float, on_progress: ProgressFnT
    ) -> types.CallToolResult:
        """Call a tool. Cancelling it sends the server a cancellation.

        Raises:
            SourceTimeout, SourceDied, SourceProtocolError, SourceFault: what the server did.
        """
        session = self._session
        if session is None:
            raise SourceDied(self._name, self.reason or "ended")
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            return await session.send_request(
                request,
                types.CallToolResult,
                request_read_timeout_seconds=timeout_s,
                progress_callback=on_progress,
            )
        except MCPError as error:
            if error.code == types.REQUEST_TIMEOUT and not self.reason:
                raise SourceTimeout(
                    self._name, f"did not answer within {timeout_s:g} s, and was sent a cancellation"
                ) from error
            if error.code == types.CONNECTION_CLOSED:
                raise SourceDied(self._name, self.reason or "ended") from error
            raise SourceFault(self._name, f"refused the call ({error.code}): {_short(error)}") from error
        except ValidationError as error:
            raise SourceProtocolError(self._name, f"sent an invalid result: {_short(error)}") from error

    async def _list(self, session: ClientSession) -> ToolListing:
        """Read all pages of the tool list.

        Raises:
            SourceProtocolError: the list is too long, or names a tool twice.
        """
        found: dict[str, OfferedTool] = {}
        unusable: dict[str, str] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await session.send_request(types.ListToolsRequest(params=params), types.ListToolsResult)
            for tool in page.tools:
                if tool.name in found or tool.name in unusable:
                    raise SourceProtocolError(self._name, f"lists the tool `{tool.name[:100]}` twice")
                try:
                    found[tool.name] = _to_offered(tool)
                except (ValueError, SourceFault) as error:
                    unusable[tool.name] = _short(error)
            if len(found) + len(unusable) > MAX_TOOLS:
                raise SourceProtocolError(self._name, f"lists more than {MAX_TOOLS} tools")
            cursor = page.next_cursor
            if not cursor:
                about = session.server_info
                server = f"{about.name} {about.version}"[:200] if about else ""
                return ToolListing(server, tuple(found.values()), unusable)
        raise SourceProtocolError(self._name, f"has more than {MAX_PAGES} pages of tools")

    async def _watch_tools(self, session: ClientSession) -> None:
        """Read the tool list again after each change notification."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                async with asyncio.timeout(self._start_s):
                    self.latest = await self._list(session)
            except (TimeoutError, MCPError, ValidationError, SourceFault) as error:
                self._close(f"reports changed tools, but does not list them: {_short(error)}")
                return
            await asyncio.to_thread(self._on_listing, self.latest)
            await asyncio.sleep(RELIST_S)

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()
        await anyio.lowlevel.checkpoint()

    def _close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._closed.set()


def _to_offered(tool: types.Tool) -> OfferedTool:
    """The pinned fields of a listed tool, without annotations, icons and meta.

    Raises:
        ValueError: the tool is too large, or has no canonical form.
    """
    made = OfferedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
    )
    try:
        assert made.hash  # noqa: S101 (computed now to fail early)
    except Exception as error:
        raise ValueError(_short(error)) from error
    return made


def _first_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _short(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())[:300]
