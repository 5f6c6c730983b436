"""http.fetch: one HTTP request from inside the sandbox, through the egress proxy, to a host that the profile allows."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.domain.network import hostnames
from codesdk.domain.network.hostnames import InvalidHostname
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.egress.intersection import restrict_to_hosts
from codesdk.sandbox.egress.rules import HTTP_PORT, HTTPS_PORT, EgressRules, Protocol
from codesdk.sandbox.port import Chunk, ExecResult, ExitKind
from codesdk.tools.context import Attachment, ToolContext
from codesdk.tools.pages import fit_text, room_beside

DEFAULT_BYTES = 1024 * 1024
"""Bytes of a body that are read where the caller names no other number."""
REDIRECTS = 10
"""Within one origin; browsers follow 20, and nothing good needs more than a few."""
_PROGRAM = Path(__file__).with_name("fetch_program.py")
_MANAGED_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
)
_ERRORS = ("NO_EGRESS", "EGRESS_REFUSED", "TLS_FAILED", "TIMEOUT", "CUT_OFF")
"""What the program says of a failure, beside FETCH_FAILED."""
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/yaml")


class _RequestRejected(Exception):
    """The request is not sent; a code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def fetch(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Ask for a URL; the body is shown as text, and kept as an artifact where it is no text or too long to show."""
    try:
        rules = _rules_for_host(given["url"], context.profile.egress)
        _check_headers(given.get("headers", {}))
    except _RequestRejected as refused:
        return ToolResult(text=f"Nothing was sent. {refused}", is_error=True, code=refused.code)
    most = min(given.get("max_bytes", DEFAULT_BYTES), context.profile.keep_output_bytes // 2)
    pieces = {"stdout": bytearray(), "stderr": bytearray()}

    def collect(chunk: Chunk) -> None:
        pieces[chunk.stream] += chunk.data

    request = {
        "url": given["url"].partition("#")[0],
        "method": given.get("method", "GET"),
        "headers": given.get("headers", {}),
        "body": given.get("body"),
        "redirects": REDIRECTS if given.get("redirects", "same-origin") == "same-origin" else 0,
        "max_bytes": most,
        "timeout_s": min(given.get("timeout_s", context.timeout_s), context.timeout_s),
    }
    argv = ("python3", "-I", "-S", "-c", _PROGRAM.read_text())
    ended = context.run(argv, collect, egress=rules, stdin=json.dumps(request).encode())
    if ended.kind is not ExitKind.EXITED or ended.exit_code != 0:
        return _failure_result(ended, bytes(pieces["stderr"]), context.clean)
    line, _, body = bytes(pieces["stdout"]).partition(b"\n")
    try:
        head = json.loads(line)
        return _response_result(given, head, body[:most], context)
    except (ValueError, KeyError, TypeError, AttributeError):
        # The sandbox's own python3 said this; in a tenant's image that may be anything.
        logging.getLogger(__name__).info("http.fetch: the sandbox's answer cannot be read")
        return ToolResult(text="The sandbox's answer cannot be read.", is_error=True, code="FETCH_FAILED")


def _rules_for_host(url: str, allowed: EgressRules) -> EgressRules:
    """The profile's rules for this host alone: a program in the sandbox that lies about the URL gets nowhere else."""
    if not allowed:
        message = (
            "This session's profile allows no host. An operator gives it `egress` rules; see docs/reference/egress.md."
        )
        raise _RequestRejected("NO_EGRESS", message)
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise _RequestRejected("INVALID_URL", "Leave user and password out of the URL.")
        host = hostnames.canonical_host(parts.hostname or "")
        port = parts.port
    except (InvalidHostname, ValueError) as error:
        raise _RequestRejected("INVALID_URL", f"The URL names no host that is certain: {error}.") from error
    protocol = Protocol.TLS if parts.scheme == "https" else Protocol.HTTP
    asked = port or (HTTPS_PORT if protocol is Protocol.TLS else HTTP_PORT)
    if allowed.find(host, asked, protocol) is None:
        raise _RequestRejected("HOST_NOT_ALLOWED", _not_allowed_message(host, asked, protocol, allowed))
    return restrict_to_hosts(allowed, (host,))


def _not_allowed_message(host: str, port: int, protocol: Protocol, allowed: EgressRules) -> str:
    place = f"{'https' if protocol is Protocol.TLS else 'http'}://{hostnames.url_host(host)}:{port}"
    known = [rule for rule in allowed.rules if hostnames.covers(rule.host, host)]
    if not known:
        return f"This session's profile does not allow {place}."
    ways = ", ".join(
        f"{'https' if rule.protocol is Protocol.TLS else 'http'}://{hostnames.url_host(host)}:{number}"
        for rule in known
        for number in rule.reached_ports
    )
    return f"This session's profile does not allow {place}; of this host it allows {ways}."


def _check_headers(headers: dict[str, str]) -> None:
    for name in headers:
        if name.lower() in _MANAGED_HEADERS or name.lower().startswith("proxy-"):
            raise _RequestRejected("INVALID_HEADER", f"The header `{name}` cannot be set; CodeSDK writes it.")


def _failure_result(ended: ExecResult, stderr: bytes, clean: Callable[[str], str]) -> ToolResult:
    text: str
    code: str
    match ended.kind:
        case ExitKind.SPAWN_FAILED:
            text, code = f"This sandbox image has no python3: {ended.error}", "NO_PYTHON"
        case ExitKind.EXITED:
            last = clean(stderr.decode("utf-8", "replace")).strip().rpartition("\n")[2]
            text, code = f"The fetch failed in the sandbox: {last[:500]}", "FETCH_FAILED"
        case ExitKind.TIMED_OUT:
            text, code = f"No whole answer within {ended.duration_s:.1f} s.", "TIMED_OUT"
        case _:
            text, code = f"The fetch did not end well: {ended.kind}.", ended.kind.upper()
    return ToolResult(text=text, is_error=True, code=code)


def _response_result(given: dict[str, Any], head: dict[str, Any], body: bytes, context: ToolContext) -> ToolResult:
    if "error" in head:
        text = f"{given['url']}: {context.clean(str(head['message']))[:1000]}"
        return ToolResult(text=text, is_error=True, code=head["error"] if head["error"] in _ERRORS else "FETCH_FAILED")
    headers: dict[str, str] = {}
    for name, value in head["headers"]:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    content_type = headers.get("content-type", "")
    if context.redactor is not None:
        body = context.redactor.clean(body, is_cut=bool(head["cut"]))
    whole = _decode_body(body, content_type, cut=bool(head["cut"]))
    room = room_beside(json.dumps([headers, head["redirects"], head["location"], str(head["url"])]))
    shown = None if whole is None else fit_text(whole[: context.profile.show_output_bytes], room)
    artifact = shown is None or shown != whole
    if artifact:
        media = _MEDIA_TYPE.match(content_type.lower())
        context.attach(Attachment("body", media[0] if media else "application/octet-stream", body))
    status = int(head["status"])
    structured = {
        "url": str(head["url"]),
        "status": status,
        "headers": headers,
        "body": shown,
        "bytes": len(body),
        "truncated": bool(head["cut"]),
        "artifact": artifact,
        "redirects": [str(url) for url in head["redirects"]],
        "location": None if head["location"] is None else str(head["location"]),
    }
    failed = status >= 400  # noqa: PLR2004 (client and server errors, RFC 9110)
    return ToolResult(
        text="\n".join(_response_lines(structured, str(head["reason"]), content_type)),
        structured=structured,
        is_error=failed,
        code="HTTP_ERROR" if failed else None,
    )


def _decode_body(body: bytes, content_type: str, *, cut: bool) -> str | None:
    """The body as text; None where it is none. What is not UTF-8 but says that it is text shows U+FFFD."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        inside = cut and error.start >= len(body) - 3  # cut in the middle of a character
        plain = content_type.lower().startswith(_TEXT_TYPES)
        return body.decode("utf-8", "ignore" if inside else "replace") if inside or plain else None


def _response_lines(answer: dict[str, Any], reason: str, content_type: str) -> list[str]:
    kind = content_type or "no content type"
    words = [f"{answer['status']} {reason} ({kind}, {answer['bytes']} bytes) {answer['url']}"]
    if answer["location"] is not None:
        words.append(f"[redirects to {answer['location']}, which was not followed; fetch it to go there]")
    if answer["body"]:
        words.append(answer["body"])
    if answer["artifact"]:
        words.append("[the body is in the artifact, whole as far as it was read]")
    if answer["truncated"]:
        words.append(f"[the body goes on: only {answer['bytes']} bytes were read]")
    return words
