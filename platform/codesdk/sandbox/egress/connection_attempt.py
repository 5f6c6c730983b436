"""The record of one egress connection attempt, and why it was refused or ended."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.egress import http_head


class AttemptPhase(StrEnum):
    """The phase that a record reports."""

    OPENED = "opened"
    """Allowed and connected; recorded before the first byte passes."""
    CLOSED = "closed"
    """The end of an opened connection."""
    REFUSED = "refused"
    """Denied, or failed to connect."""


class Reason(StrEnum):
    """Why an attempt was refused or a connection ended; `done` if normally."""

    DONE = "done"
    # Denied by rules and budgets.
    NOT_ALLOWED = "not_allowed"
    ADDRESS_REFUSED = "address_refused"
    NOT_THE_EXEC = "not_the_exec"
    CREDENTIAL = "credential"
    TOO_MANY_AT_ONCE = "too_many_at_once"
    TOO_MANY = "too_many"
    BYTES_UP = "bytes_up"
    BYTES_DOWN = "bytes_down"
    BYTES_A_DAY = "bytes_a_day"
    # Denied because of the request.
    BAD_REQUEST = "bad_request"
    HOST_DIFFERS = "host_differs"
    NOT_TLS = "not_tls"
    SNI_MISSING = "sni_missing"
    SNI_DIFFERS = "sni_differs"
    ENCRYPTED_HELLO = "encrypted_hello"
    # Failed, or ended.
    SLOW = "slow"
    IDLE = "idle"
    NO_SUCH_NAME = "no_such_name"
    UNREACHABLE = "unreachable"
    UPSTREAM_TLS = "upstream_tls"
    BAD_RESPONSE = "bad_response"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - a reason's name
    BROKEN = "broken"
    """One side closed the connection early."""
    EXEC_ENDED = "exec_ended"
    INTERNAL = "internal"
    """A defect in the proxy; see the log. Nothing passes."""


class ConnectionAttempt(FrozenModel):
    """One record of an attempt. It contains no headers, paths or content."""

    owner: str
    """The sandbox."""
    call: str
    attempt: int
    number: int
    """The exec's attempts, counted from 1; the `opened` and `closed` records of a connection share a number."""
    phase: AttemptPhase
    reason: Reason = Reason.DONE
    detail: str = ""
    """Human-readable; text from the sandbox is bounded and escaped."""
    method: str = ""
    host: str = ""
    """Canonical, as the tool named it."""
    port: int = 0
    rule: str = ""
    address: str = ""
    """The address connected to."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets injected."""
    bytes_up: int = 0
    bytes_down: int = 0
    duration_s: float = 0.0
    count: int = 1
    """Number of attempts in this record; more than 1 if a flood of refusals was merged."""

    @property
    def connection(self) -> ConnectionKey:
        """The key shared by a connection's records."""
        return self.owner, self.call, self.attempt, self.number


ConnectionKey = tuple[str, str, int, int]
"""Sandbox, call, the call's attempt, and number: identifies one connection of a worker."""

OnAttempt = Callable[[ConnectionAttempt], None]
"""Called from the recorder thread, in order. `opened` must be stored when it returns; if it raises, nothing passes."""


_STATUS = {
    Reason.NOT_ALLOWED: (403, "Forbidden"),
    Reason.ADDRESS_REFUSED: (403, "Forbidden"),
    Reason.CREDENTIAL: (407, "Proxy Authentication Required"),
    Reason.TOO_MANY: (429, "Too Many Requests"),
    Reason.BYTES_A_DAY: (429, "Too Many Requests"),
    Reason.TOO_MANY_AT_ONCE: (429, "Too Many Requests"),
    Reason.BYTES_UP: (413, "Content Too Large"),
    Reason.BAD_REQUEST: (400, "Bad Request"),
    Reason.HOST_DIFFERS: (400, "Bad Request"),
    Reason.SLOW: (408, "Request Timeout"),
    Reason.NO_SUCH_NAME: (502, "Bad Gateway"),
    Reason.UNREACHABLE: (502, "Bad Gateway"),
    Reason.UPSTREAM_TLS: (502, "Bad Gateway"),
    Reason.BAD_RESPONSE: (502, "Bad Gateway"),
    Reason.IDLE: (504, "Gateway Timeout"),
}
_DEFAULT_STATUS = (500, "Internal Server Error")


class Refusal(Exception):
    """Ends a connection for a reason. Becomes a `ConnectionAttempt` and an HTTP response."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail[:400]

    def answer(self) -> bytes:
        """The HTTP response for the tool."""
        status, words = _STATUS.get(self.reason, _DEFAULT_STATUS)
        extra: http_head.Fields = (("X-CodeSDK-Egress", self.reason.value),)
        if self.reason is Reason.CREDENTIAL:
            extra = (*extra, ("Proxy-Authenticate", 'Basic realm="codesdk egress"'))
        return http_head.answer(status, words, f"egress: {self.detail or self.reason.value}", extra=extra)
