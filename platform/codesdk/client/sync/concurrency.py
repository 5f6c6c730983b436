"""What differs between the two clients beyond the words `async` and `await`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx2

T = TypeVar("T")

HttpClient = httpx2.Client
sleep = time.sleep


def resolve(value: Any) -> Any:
    """The value that a callback returned."""
    return value


def finish(result: T) -> T:
    """The result of work that is done."""
    return result


def save(response: httpx2.Response, target: Path) -> int:
    """Write a response's body to a file and return its size in bytes."""
    with target.open("wb") as out:
        return sum(out.write(piece) for piece in response.iter_bytes())


def in_thread(work: Callable[[], T]) -> T:
    """Do work that blocks."""
    return work()
