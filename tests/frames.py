"""Reads frames of a stream of server-sent events as they arrive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any


def parsed(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Each frame's id, event and data; a comment is a frame of its own."""
    frame: dict[str, Any] = {}
    for line in lines:
        if line.startswith(":"):
            yield {"comment": line}
        elif line:
            name, _, value = line.partition(": ")
            frame[name] = value
        elif frame:
            if "data" in frame:
                frame["data"] = json.loads(frame["data"])
            yield frame
            frame = {}


class Reader:
    """Takes frames."""

    def __init__(self, frames: Iterator[dict[str, Any]]) -> None:
        self._frames = frames

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next frames that are no comments."""
        taken: list[dict[str, Any]] = []
        for frame in self._frames:
            if "data" in frame:
                taken.append(frame)
            if len(taken) == count:
                return taken
        return taken

    def rest(self) -> list[dict[str, Any]]:
        """All that come until the stream ends."""
        return [frame for frame in self._frames if "data" in frame]

    def comment(self) -> dict[str, Any]:
        """The next comment."""
        return next(frame for frame in self._frames if "comment" in frame)
