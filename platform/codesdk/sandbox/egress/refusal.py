"""A "no" of the proxy, and what the tool is told."""

from __future__ import annotations

from codesdk.sandbox.egress import http_head
from codesdk.sandbox.egress.connection_attempt import Reason

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
    """Why a connection is refused or ended. Internal: it becomes an `Attempt` and an answer."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail[:400]

    def answer(self) -> bytes:
        """The response that the tool gets, where it can still get one."""
        status, words = _STATUS.get(self.reason, _DEFAULT_STATUS)
        extra: http_head.Fields = (("X-CodeSDK-Egress", self.reason.value),)
        if self.reason is Reason.CREDENTIAL:
            extra = (*extra, ("Proxy-Authenticate", 'Basic realm="codesdk egress"'))
        return http_head.answer(status, words, f"egress: {self.detail or self.reason.value}", extra=extra)
