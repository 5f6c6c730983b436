"""The `Range` header of RFC 9110, limited to one range of bytes."""

from __future__ import annotations

import re
from typing import NamedTuple

_SINGLE_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """A range of bytes."""

    start: int
    length: int


class Unsatisfiable(NamedTuple):
    """The range starts past the end."""


def parse_range(header: str | None, size: int) -> ByteRange | Unsatisfiable | None:
    """Return the requested part of `size` bytes; None: all of them.

    Other units, multiple ranges and invalid headers are ignored, as the RFC specifies.
    """
    found = _SINGLE_RANGE.fullmatch(header or "")
    if found is None or found.group(1) == found.group(2) == "":
        return None
    first, last = found.groups()
    if not first:  # a suffix range: the last N bytes
        length = min(int(last), size)
        return ByteRange(size - length, length) if length else Unsatisfiable()
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        return Unsatisfiable()
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1)
