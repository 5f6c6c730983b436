"""How much of a result one answer shows, and how texts and lists are cut to that. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from codesdk.domain.tool_results import wire_name

PAGE_BYTES = 40_000
"""UTF-8 bytes of one answer, its text and its structured result together. Clients pass on both: Kimi Code takes 50,000
characters, Claude Code 25,000 tokens, and dense text has a token for less than two characters."""
NOTE_BYTES = 1500
"""Of these for notes and fields around the content."""

_MIN_ROOM = 2000


def size_in_page(text: str) -> int:
    """Bytes of the page that a text takes if the text and the structured result both have it."""
    return 2 * (len(_json_string(text)) - len('""'))


def fit_text(text: str, room: int) -> str:
    """The longest beginning of a text that takes at most `room` bytes of the page."""
    fits, exceeds = 0, min(len(text), room // 2) + 1
    while fits + 1 < exceeds:
        middle = (fits + exceeds) // 2
        fits, exceeds = (middle, exceeds) if size_in_page(text[:middle]) <= room else (fits, middle)
    return text[:fits]


def room_beside(*shown: str) -> int:
    """Bytes of a page that are left for content, beside texts that the answer repeats in notes."""
    return max(_MIN_ROOM, PAGE_BYTES - NOTE_BYTES - sum(map(size_in_page, shown)))


def next_page(tool: str, arguments: Mapping[str, Any]) -> str:
    """How to get the next page: the call, as a note in the text has it."""
    return f"next page: {wire_name(tool)} {json.dumps(arguments, ensure_ascii=False)}"


def _json_string(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
