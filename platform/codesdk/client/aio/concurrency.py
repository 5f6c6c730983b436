"""What differs between the two clients beyond the words `async` and `await`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import httpx2

T = TypeVar("T")

HttpClient = httpx2.AsyncClient
sleep = asyncio.sleep


async def resolve(value: Any) -> Any:
    """The value that a callback returned, awaited if the callback is asynchronous."""
    return await value if inspect.isawaitable(value) else value


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Do the work to its end, even if the task that waits for it is cancelled."""
    return await asyncio.shield(asyncio.ensure_future(work))


async def save(response: httpx2.Response, target: Path) -> int:
    """Write a response's body to a file and return its size in bytes."""
    size = 0
    async with await anyio.open_file(target, "wb") as out:
        async for piece in response.aiter_bytes():
            size += await out.write(piece)
    return size


async def in_thread(work: Callable[[], T]) -> T:
    """Do work that blocks."""
    return await anyio.to_thread.run_sync(work)
