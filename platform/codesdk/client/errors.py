"""The client's errors: the API's codes as exceptions, one class per kind that an application handles differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codesdk.errors import ExitCode, Fault


class ApiError(Fault):
    """The API refused a request.

    Attributes:
        code: the API's stable code, such as `SESSION_UNKNOWN`.
        status: the HTTP status.
        retryable: whether the same request may succeed later.
        details: fields of the error; they depend on the code.
        retry_after_s: seconds after which a retry may succeed, if the API says.
    """

    code = "API_ERROR"
    exit_code = ExitCode.FAILED

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        retryable: bool = False,
        advice: str = "",
        details: dict[str, object] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, advice=advice, details=details)
        # Class attributes of a fault; the API's answer sets them for this one.
        self.code = code  # type: ignore[misc]
        self.status = status  # type: ignore[misc]
        self.retryable = retryable  # type: ignore[misc]
        self.retry_after_s = retry_after_s  # type: ignore[misc]


class InvalidRequestError(ApiError):
    """The request is wrong (400, 409 of a wrong use, 413, 415, 422): sending it again doesn't help."""


class AuthenticationError(ApiError):
    """The API key is missing, wrong, expired or revoked (401)."""

    exit_code = ExitCode.NO_PERMISSION


class PermissionDeniedError(ApiError):
    """The key's principal may not do this (403)."""

    exit_code = ExitCode.NO_PERMISSION


class NotFoundError(ApiError):
    """There is no such object for this key (404, 410)."""


class ConflictError(ApiError):
    """The object's state doesn't allow it, or a quota is used up (409, 412)."""


class RateLimitedError(ApiError):
    """Too many requests or queued calls (429)."""

    exit_code = ExitCode.UNAVAILABLE


class ServerError(ApiError):
    """The API failed or lacks something that it needs (5xx)."""

    exit_code = ExitCode.UNAVAILABLE


class ApiUnreachable(ApiError):
    """Nothing answers at the API's address, or the connection broke. Whether the request was carried out is unknown."""

    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, url: str, cause: str) -> None:
        """`url`: the API's address; `cause`: what the connection failed with."""
        super().__init__(
            f"The API at {url} doesn't answer ({cause}).",
            code="API_UNREACHABLE",
            status=503,
            retryable=True,
            advice="Check that CodeSDK runs there, and the address.",
        )


class CallFailed(ApiError):
    """A call was denied, or ended with an error; raised only by `Call.check`."""

    def __init__(self, message: str, *, code: str, call_id: str) -> None:
        """`code`: the denial's or the error's code; `call_id`: the call's id, for its record."""
        super().__init__(message, code=code, status=200, details={"tool_call_id": call_id})


_CLASSES: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    412: ConflictError,
    429: RateLimitedError,
}
_SERVER_ERRORS = 500


def error_of(status: int, problem: object, retry_after: str | None = None) -> ApiError:
    """The exception for an error response. `problem`: its JSON body, or anything else if it has none."""
    fields: Mapping[str, Any] = problem if isinstance(problem, dict) else {}
    kind = _CLASSES.get(status, ServerError if status >= _SERVER_ERRORS else InvalidRequestError)
    return kind(
        str(fields.get("detail") or f"The API answered HTTP {status}."),
        code=str(fields.get("code") or f"HTTP_{status}"),
        status=status,
        retryable=bool(fields.get("retryable", status >= _SERVER_ERRORS)),
        advice=str(fields.get("advice") or ""),
        details=fields.get("details") or {},
        retry_after_s=float(retry_after) if retry_after and retry_after.isdecimal() else None,
    )
