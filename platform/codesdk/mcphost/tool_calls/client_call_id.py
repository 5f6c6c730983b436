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

CALL_ID_KEY = "codesdk/callId"
AGENT_KEYS = ("claudecode/toolUseId", "callId")
"""Claude Code 2.1 and Codex 0.171, as recorded; Gemini CLI, Kimi Code, OpenCode and Qwen Code send none."""
MAX_CHARS = 200
"""Most of an id: what a row has room for."""
_ALLOWED = re.compile(rf"[\x21-\x7e]{{1,{MAX_CHARS}}}")
_MIXED_ALNUM = r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[0-9A-Za-z]{16,}"
"""Letters and digits, of both: `toolu_` and `call_` are followed by 24."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RANDOM = re.compile(f"{_MIXED_ALNUM}|{_UUID}")


@dataclass(frozen=True)
class ClientCallId:
    """What a client calls its call."""

    text: str
    is_binding: bool
    """The client answers for it: with another tool or input it is refused. Else such a call is taken as one without."""


def client_call_id(meta: Mapping[str, Any] | None) -> ClientCallId | None:
    """The id that the request gives its call; None where it gives none that counts.

    Raises:
        MCPError: it is said as ours, and is not text of 1 to 200 visible ASCII characters.
    """
    said = meta or {}
    if CALL_ID_KEY in said:
        own_id = said[CALL_ID_KEY]
        if not isinstance(own_id, str) or not _ALLOWED.fullmatch(own_id):
            raise MCPError(types.INVALID_PARAMS, f"{CALL_ID_KEY} is text of 1 to {MAX_CHARS} visible ASCII characters.")
        return ClientCallId(own_id, is_binding=True)
    for name in AGENT_KEYS:
        agent_id = said.get(name)
        if isinstance(agent_id, str) and _ALLOWED.fullmatch(agent_id) and _RANDOM.search(agent_id):
            return ClientCallId(agent_id, is_binding=False)
    return None
