"""Who makes a tool call, and what the request asks for: its wait limit, call id, progress and elicitation."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from starlette.requests import HTTPConnection

from codesdk.domain.subjects import Subject
from codesdk.mcphost.elicitation.questions import QuestionReply
from codesdk.mcphost.server.connections import ClientConnection
from codesdk.toolcalls.records.call_record import Outcome

WAIT_HEADER = "CodeSDK-Wait"
"""Seconds within which each call of this client is answered. It's set in the client's configuration, next to the client's
own timeout, so that the two stay in step."""
MAX_WAIT_S = 7 * 86400.0

CALL_ID_KEY = "codesdk/callId"
"""For programs written for CodeSDK: a binding id. One id for two different calls is an error."""
AGENT_KEYS = ("claudecode/toolUseId", "callId")
"""Claude Code 2.1 and Codex 0.171, as recorded; Gemini CLI, Kimi Code, OpenCode and Qwen Code send none."""
MAX_CALL_ID_CHARS = 200
"""What a database row has room for."""
_CALL_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_CALL_ID_CHARS}}}")
_MIXED_ALNUM = r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[0-9A-Za-z]{16,}"
"""At least one letter and one digit: `toolu_` and `call_` are followed by 24 of these."""
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RANDOM = re.compile(f"{_MIXED_ALNUM}|{_UUID}")

AGENT_CLIENTS = ("claude-code", "codex", "gemini-cli", "kimi", "opencode", "qwen")
"""Beginnings of the names of clients that hand results to a model. Some hand on the structured
result in place of the text, some both, some `_meta` too: text alone reaches the model in each of them, once (ADR 49)."""

_Context = ServerRequestContext[Any, Any]
ReportProgress = Callable[[float, str], Awaitable[None]]
"""Sends one progress notification: seconds elapsed, and a line to show."""


@dataclass(frozen=True)
class ClientCallId:
    """The id that a client gave its call."""

    text: str
    is_binding: bool
    """True: reusing it for another tool or input is an error. False: such a call is treated as one without an id."""


class ClientElicitor:
    """Asks a client's user, in the way its protocol era provides."""

    def __init__(self, ctx: _Context, answered: QuestionReply | None) -> None:
        self._ctx = ctx
        self.answered = answered
        """The user's reply, if this request is the second round of a question."""

    @property
    def capability(self) -> types.ElicitationCapability | None:
        """The elicitation capability that the client declared."""
        declared = self._ctx.session.client_capabilities
        return declared.elicitation if declared else None

    @property
    def live(self) -> bool:
        """Whether the client accepts requests while a call waits. Clients of the newer era are asked in the call's result."""
        return self._ctx.session.can_send_request

    async def ask(self, question: types.ElicitRequest) -> types.ElicitResult | None:
        """Ask on the call's stream and wait for the reply. None: the client answered with an error."""
        session, related = self._ctx.session, self._ctx.request_id
        params = question.params
        try:
            if isinstance(params, types.ElicitRequestFormParams):
                return await session.elicit_form(params.message, params.requested_schema, related_request_id=related)
            elicitation_id = params.elicitation_id or ""
            return await session.elicit_url(params.message, params.url, elicitation_id, related_request_id=related)
        except MCPError:
            return None


@dataclass(frozen=True)
class Caller:
    """Who makes a call, and how to reach the client until it is answered."""

    subject: Subject
    report: ReportProgress | None = None
    """None: the client wants no progress."""
    asking: ClientElicitor | None = None
    """None: the user can't be asked."""
    wait_s: float | None = None
    """The client's own limit in seconds; None: the server's setting."""
    call_id: ClientCallId | None = None
    connection: ClientConnection | None = None
    """Of a handshake-era client. None: the request itself ends when its client leaves."""

    @property
    def left(self) -> bool:
        """Whether a request that was cancelled lost its client. Only the handshake era can say that it cancels."""
        return self.connection is None or self.connection.deleted or not self.connection.requests

    @property
    def has_binding_id(self) -> bool:
        """Whether the client sent a binding id, and so can send another. Agents' own ids are new with each call."""
        return self.call_id is not None and self.call_id.is_binding

    def asks_for(self, outcome: Outcome) -> bool:
        """Whether the request carries that call's id, which asks for its result rather than a second run."""
        return self.call_id is not None and self.call_id.text == outcome.identity.runtime_tool_call_id


def has_text_results(ctx: _Context) -> bool:
    """Whether the client gets results as text (and images) alone, by the name that it declared."""
    declared = ctx.session.client_params
    return declared is not None and declared.client_info.name.lower().startswith(AGENT_CLIENTS)


def requested_wait_s(request: HTTPConnection | None) -> float | None:
    """The request's wait limit in seconds; None if it sets none.

    Raises:
        MCPError: the header is not a positive number within the limit.
    """
    given = request.headers.get(WAIT_HEADER) if request is not None else None
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not isfinite(seconds) or not 0 < seconds <= MAX_WAIT_S:
        raise MCPError(types.INVALID_REQUEST, f"{WAIT_HEADER} is a number of seconds, at most {MAX_WAIT_S:.0f}.")
    return seconds


def client_call_id(meta: Mapping[str, Any] | None) -> ClientCallId | None:
    """The id in the request's `_meta`; None if there is none that can be trusted to be unique.

    Agents pass on what their model made up. A counter (`call_0`, `functions.read:1`) starts over with each conversation of
    a session, and would return an older call's result; so an agent's id counts only if it looks random.

    Raises:
        MCPError: a binding id is not text of 1 to 200 visible ASCII characters.
    """
    meta = meta or {}
    if CALL_ID_KEY in meta:
        own_id = meta[CALL_ID_KEY]
        if not isinstance(own_id, str) or not _CALL_ID.fullmatch(own_id):
            raise MCPError(
                types.INVALID_PARAMS, f"{CALL_ID_KEY} is text of 1 to {MAX_CALL_ID_CHARS} visible ASCII characters."
            )
        return ClientCallId(own_id, is_binding=True)
    for name in AGENT_KEYS:
        agent_id = meta.get(name)
        if isinstance(agent_id, str) and _CALL_ID.fullmatch(agent_id) and _RANDOM.search(agent_id):
            return ClientCallId(agent_id, is_binding=False)
    return None
