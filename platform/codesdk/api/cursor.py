"""A reader's position in a session's log: `<epoch>-<seq>`. The epoch changes when the log is replaced."""

from __future__ import annotations

import re
from typing import NamedTuple

CURSOR_PATTERN = r"^([A-Za-z0-9_]{1,64}-)?(0|[1-9][0-9]{0,15})$"
"""Pattern of valid cursors in queries."""
_CURSOR_RE = re.compile(r"(?:(?P<epoch>[A-Za-z0-9_]{1,64})-)?(?P<seq>0|[1-9][0-9]{0,15})", re.ASCII)


class StartPosition(NamedTuple):
    """The position at which a reader's stream begins."""

    epoch: str
    after: int
    """The stream begins with the `seq` after this one."""
    resync: str | None
    """Why the reader's own position can't be used, if so; then `after` is 0."""


def encode_cursor(epoch: str, seq: int) -> str:
    """Return the cursor of a reader that has seen `seq`."""
    return f"{epoch}-{seq}"


def start_position(given: str | None, epoch: str, head: int) -> StartPosition:
    """Return the start for a reader's cursor. A bare number is a position in the current epoch."""
    if given is None:
        return StartPosition(epoch, 0, None)
    found = _CURSOR_RE.fullmatch(given)
    if found is None:
        return StartPosition(epoch, 0, "the cursor is not one of ours")
    if found["epoch"] not in (None, epoch):
        return StartPosition(epoch, 0, "the cursor is of another log epoch")
    if int(found["seq"]) > head:
        return StartPosition(epoch, 0, "the cursor is past the end of the log")
    return StartPosition(epoch, int(found["seq"]), None)
