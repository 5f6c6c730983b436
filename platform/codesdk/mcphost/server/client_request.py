"""What one request says of its client: how long it waits, and how its user can be asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import AESGCMRequestStateCodec
from mcp.shared.exceptions import MCPError
from starlette.requests import HTTPConnection

from codesdk.mcphost.elicitation.questions import QuestionReply

WAIT_HEADER = "CodeSDK-Wait"
"""Names the seconds in which each call of this client is answered; it stands in the client's configuration, beside the
client's own limit, so that the two cannot part."""
MAX_WAIT_S = 7 * 86400.0

_Context = ServerRequestContext[Any, Any]


def requested_wait_s(request: HTTPConnection | None) -> float | None:
    """Seconds that this client wants to wait for an answer; None: it does not say.

    Raises:
        MCPError: it says something that is no such number.
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


class LazyStateCodec:
    """Seals with a key that is asked for at the first need, which most processes never have."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._made = cache(lambda: AESGCMRequestStateCodec([key()]))

    def seal(self, payload: bytes) -> str:
        """The payload as a client may carry it."""
        return self._made().seal(payload)

    def unseal(self, token: str) -> bytes:
        """What was sealed.

        Raises:
            InvalidRequestState: it was not, or with another key.
        """
        return self._made().unseal(token)


class ClientElicitor:
    """The `Asking` of a connected client, in the way of its protocol's era."""

    def __init__(self, ctx: _Context, answered: QuestionReply | None) -> None:
        self._ctx = ctx
        self._answered = answered

    @property
    def capability(self) -> types.ElicitationCapability | None:
        """What it declared."""
        declared = self._ctx.session.client_capabilities
        return declared.elicitation if declared else None

    @property
    def answered(self) -> QuestionReply | None:
        """The answer that this request brought."""
        return self._answered

    @property
    def live(self) -> bool:
        """Whether requests reach it; in the newer era none do."""
        return self._ctx.session.can_send_request

    async def ask(self, question: types.ElicitRequest) -> types.ElicitResult | None:
        """Ask on the stream of the call. None: it answers with an error, although it says that it can be asked."""
        session, related = self._ctx.session, self._ctx.request_id
        params = question.params
        try:
            if isinstance(params, types.ElicitRequestFormParams):
                return await session.elicit_form(params.message, params.requested_schema, related_request_id=related)
            named = params.elicitation_id or ""
            return await session.elicit_url(params.message, params.url, named, related_request_id=related)
        except MCPError:
            return None
