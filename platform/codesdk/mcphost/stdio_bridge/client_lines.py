"""Reads the lines of a stdio client, and answers those that can't be forwarded: a request in them would never be answered."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

import mcp_types as types

from codesdk.mcphost.message_check import check_message

Answer = Callable[[types.JSONRPCError], Awaitable[None]]


class ClientLines:
    """The lines that can be forwarded, as text."""

    def __init__(self, lines: AsyncIterable[bytes], answer: Answer) -> None:
        self._lines = lines
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each line that can be forwarded; answer the requests in the others."""
        async for line in self._lines:
            text, errors = check_message(line)
            for error in errors:
                await self._answer(error)
            if not errors:
                yield text
