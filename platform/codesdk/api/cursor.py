"""A reader's place in a session's log: `<epoch>-<seq>`. The epoch changes when the log is another one."""

from __future__ import annotations

import re
from typing import NamedTuple

CURSOR = r"^([A-Za-z0-9_]{1,64}-)?(0|[1-9][0-9]{0,15})$"
"""What a reader may say of its place, as a pattern for its query."""
_CURSOR = re.compile(r"(?:(?P<epoch>[A-Za-z0-9_]{1,64})-)?(?P<seq>0|[1-9][0-9]{0,15})", re.ASCII)


class Start(NamedTuple):
    """Where a reader's stream begins."""

    epoch: str
    after: int
    """The stream begins with the `seq` after this one."""
    resync: str | None
    """Why the reader's own place cannot be served, where it cannot; then `after` is 0."""


def encode(epoch: str, seq: int) -> str:
    """The cursor of a reader that has seen `seq`."""
    return f"{epoch}-{seq}"


def start(given: str | None, epoch: str, head: int) -> Start:
    """Where to begin for a reader that says `given`; a bare number means a place in the present epoch."""
    if given is None:
        return Start(epoch, 0, None)
    found = _CURSOR.fullmatch(given)
    if found is None:
        return Start(epoch, 0, "the cursor is not one of ours")
    if found["epoch"] not in (None, epoch):
        return Start(epoch, 0, "the cursor is of another log epoch")
    if int(found["seq"]) > head:
        return Start(epoch, 0, "the cursor is past the end of the log")
    return Start(epoch, int(found["seq"]), None)
