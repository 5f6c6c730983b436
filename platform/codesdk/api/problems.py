"""Turns faults into `application/problem+json` (RFC 9457), the format of every error of the API."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from codesdk.errors import Fault, InternalFault

_log = logging.getLogger(__name__)
# Our own titles, because the standard library's phrases differ between Python versions.
_HTTP_CODES = {
    400: "BAD_REQUEST",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
}


class InvalidRequest(Fault):
    """The request doesn't match the route's schema."""

    code = "INVALID_REQUEST"
    status = 422


def install_handlers(app: FastAPI) -> None:
    """Answer all exceptions of `app` with a problem."""
    app.add_exception_handler(Fault, _on_fault)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_defect)


def internal_error(error: Exception) -> Response:
    """Log an unexpected exception, and answer without its message."""
    _log.error("a request failed unexpectedly", exc_info=error)
    return problem(InternalFault("unexpected"))


def problem(fault: Fault) -> Response:
    """Build the response for a fault. Details of internal faults go only to the log."""
    if isinstance(fault, InternalFault) or type(fault) is Fault:
        return problem_body(
            500, fault.code, "An internal error in CodeSDK; its log has the cause.", title="Internal error"
        )
    summary = (type(fault).__doc__ or "").strip().splitlines()
    return problem_body(
        fault.status,
        fault.code,
        fault.message,
        title=summary[0].rstrip(".") if summary else fault.code,
        retryable=fault.retryable,
        advice=fault.advice(),
        details=fault.details,
        headers=None if fault.retry_after_s is None else {"Retry-After": str(math.ceil(fault.retry_after_s))},
    )


async def _on_fault(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Fault)  # noqa: S101 (registered for it)
    return internal_error(error) if isinstance(error, InternalFault) else problem(error)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for it)
    # Values are left out: they may be secrets, and the caller has them.
    fields = [
        {"field": _field(item["loc"]), "expected": str(item["msg"]).removeprefix("Value error, ")}
        for item in error.errors()
    ]
    text = "; ".join(f"{field['field']}: {field['expected']}" for field in fields)
    advice = "Fix the named fields and send the request again."
    return problem(InvalidRequest(f"{text}.", advice=advice, details={"fields": fields}))


async def _on_http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for it)
    code = _HTTP_CODES.get(error.status_code, f"HTTP_{error.status_code}")
    title = code.replace("_", " ").capitalize()
    return problem_body(error.status_code, code, f"{error.detail.rstrip('.')}.", title=title, headers=error.headers)


async def _on_defect(_request: Request, _error: Exception) -> Response:
    # The server's error middleware logs it, with the traceback.
    return problem(InternalFault("unexpected"))


def _field(location: tuple[Any, ...]) -> str:
    part, *path = location
    name = ".".join(str(step) for step in path)
    return f"{part} {name}" if name else str(part)


def problem_body(
    status: int,
    code: str,
    detail: str,
    *,
    title: str,
    retryable: bool = False,
    advice: str = "",
    details: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Build the response for a problem that is no fault of this process."""
    body = {
        "type": f"urn:codesdk:problem:{code.lower().replace('_', '-')}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "advice": advice,
        "details": details or {},
    }
    more = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        more["WWW-Authenticate"] = 'Bearer realm="codesdk"'
    return JSONResponse(body, status, more, media_type="application/problem+json")
