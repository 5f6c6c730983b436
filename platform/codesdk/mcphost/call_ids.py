"""The id by which a client knows its call, from the request's `_meta`: what it sends again is the same call.

`codesdk/callId` is for programs that are written for CodeSDK; they are held to it. Agents say theirs under names of their
own, and hand on what their model made up: where that is plainly counted (`call_0`, `functions.read:1`), a second
conversation of the same session counts from the beginning, and an answer of the first would be a stale one. So an agent's id
says something only where it looks drawn at random, and an agent that uses one for two calls is not refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

CALL_ID = "codesdk/callId"
AGENTS = ("claudecode/toolUseId", "callId")
"""Claude Code 2.1 and Codex 0.171, as recorded; Gemini CLI, Kimi Code, OpenCode and Qwen Code send none."""
CHARS = 200
"""Most of an id: what a row has room for."""
_WHOLE = re.compile(rf"[\x21-\x7e]{{1,{CHARS}}}")
_RUN = r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[0-9A-Za-z]{16,}"
"""Letters and digits, of both: `toolu_` and `call_` are followed by 24."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DRAWN = re.compile(f"{_RUN}|{_UUID}")


@dataclass(frozen=True)
class GivenId:
    """What a client calls its call."""

    text: str
    is_binding: bool
    """The client answers for it: with another tool or input it is refused. Else such a call is taken as one without."""


def given_id(meta: Mapping[str, Any] | None) -> GivenId | None:
    """The id that the request gives its call; None where it gives none that counts.

    Raises:
        MCPError: it is said as ours, and is not text of 1 to 200 visible ASCII characters.
    """
    said = meta or {}
    if CALL_ID in said:
        ours = said[CALL_ID]
        if not isinstance(ours, str) or not _WHOLE.fullmatch(ours):
            raise MCPError(types.INVALID_PARAMS, f"{CALL_ID} is text of 1 to {CHARS} visible ASCII characters.")
        return GivenId(ours, is_binding=True)
    for name in AGENTS:
        theirs = said.get(name)
        if isinstance(theirs, str) and _WHOLE.fullmatch(theirs) and _DRAWN.search(theirs):
            return GivenId(theirs, is_binding=False)
    return None
