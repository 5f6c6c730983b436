"""The byte stream between the proxy and one connection of a tool."""

from __future__ import annotations

from typing import Protocol


class ClientDisconnected(Exception):
    """The tool's side ended the connection, or the way to it was lost."""


class ClientStream(Protocol):
    """Used on the proxy's loop alone."""

    async def read(self) -> bytes:
        """Some bytes; empty when the tool sends no more.

        Raises:
            ConduitBroken: the connection is gone.
        """
        ...

    async def write(self, data: bytes) -> None:
        """All of it, once there is room.

        Raises:
            ConduitBroken: the connection is gone.
        """
        ...

    async def gone(self) -> None:
        """Wait until the connection is gone, without reading from it.

        Raises:
            ConduitBroken: then.
        """
        ...

    def finish(self) -> None:
        """No more bytes to the tool."""
        ...

    def reset(self) -> None:
        """End it at once, both ways."""
        ...
