"""Which clients of the handshake era are connected: a client has left once its MCP session has no open request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakValueDictionary

OnChange = Callable[[bool], None]
"""Called with whether the client is connected, each time that changes."""


class ClientKey(NamedTuple):
    """An MCP session and the session whose credential its requests have: another's can't keep it connected."""

    session: str
    mcp_session: str


class ClientConnection:
    """The open requests of one MCP session. Used on one event loop."""

    def __init__(self) -> None:
        self.requests = 0
        self.deleted = False
        """Whether the client ended its MCP session."""
        self.watchers: set[OnChange] = set()

    @contextmanager
    def watch(self, on_change: OnChange) -> Iterator[None]:
        """Call `on_change` for the block, at once if the client has left already."""
        self.watchers.add(on_change)
        try:
            if not self.requests:
                on_change(False)
            yield
        finally:
            self.watchers.discard(on_change)

    def notify(self, connected: bool) -> None:
        """Tell all watchers."""
        for each in list(self.watchers):
            each(connected)


class ClientConnections:
    """The connections of a process's handshake-era clients. Used on one event loop."""

    def __init__(self) -> None:
        # A client is kept by its open requests and by the calls that wait for it, and forgotten with the last of them.
        self._clients: WeakValueDictionary[ClientKey, ClientConnection] = WeakValueDictionary()

    @contextmanager
    def request(self, key: ClientKey, *, deletes: bool) -> Iterator[ClientConnection]:
        """Count a request of that MCP session for the block. `deletes`: it ends the MCP session."""
        client = self._clients.get(key) or ClientConnection()
        self._clients[key] = client
        client.deleted = client.deleted or deletes
        client.requests += 1
        if client.requests == 1:
            client.notify(True)
        try:
            yield client
        finally:
            client.requests -= 1
            if not client.requests:
                client.notify(False)
