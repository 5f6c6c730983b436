"""http.fetch: one HTTP request from inside the sandbox, through the egress proxy, to a host that the profile allows."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.domain import hosts
from codesdk.domain.hosts import BadName
from codesdk.domain.tools import ToolResult
from codesdk.sandbox.egress.rules import HTTP_PORT, HTTPS_PORT, EgressRules, Protocol
from codesdk.sandbox.egress.tighter import within_hosts
from codesdk.sandbox.port import Chunk, ExecResult, ExitKind
from codesdk.toolcalls.builtins.bench import Attachment, Bench

DEFAULT_BYTES = 1024 * 1024
"""Bytes of a body that are read where the caller names no other number."""
REDIRECTS = 10
"""Within one origin; browsers follow 20, and nothing good needs more than a few."""
_PROGRAM = Path(__file__).with_name("fetch_program.py")
_OURS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
)
_ERRORS = ("NO_EGRESS", "EGRESS_REFUSED", "TLS_FAILED", "TIMEOUT", "CUT_OFF")
"""What the program says of a failure, beside FETCH_FAILED."""
_MEDIA = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/yaml")


class _Refused(Exception):
    """The request is not sent; a code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def fetch(given: dict[str, Any], bench: Bench) -> ToolResult:
    """Ask for a URL; the body is shown as text, and kept as an artifact where it is no text or too long to show."""
    try:
        rules = _rules(given["url"], bench.profile.egress)
        _check_headers(given.get("headers", {}))
    except _Refused as refused:
        return ToolResult(text=f"Nothing was sent. {refused}", is_error=True, code=refused.code)
    most = min(given.get("max_bytes", DEFAULT_BYTES), bench.profile.keep_output_bytes // 2)
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
        "timeout_s": min(given.get("timeout_s", bench.timeout_s), bench.timeout_s),
    }
    argv = ("python3", "-I", "-S", "-c", _PROGRAM.read_text())
    ended = bench.run(argv, collect, egress=rules, stdin=json.dumps(request).encode())
    if ended.kind is not ExitKind.EXITED or ended.exit_code != 0:
        return _not_run(ended, bytes(pieces["stderr"]), bench.clean)
    line, _, body = bytes(pieces["stdout"]).partition(b"\n")
    try:
        head = json.loads(line)
        return _answer(given, head, body[:most], bench)
    except (ValueError, KeyError, TypeError, AttributeError):
        # The sandbox's own python3 said this; in a tenant's image that may be anything.
        logging.getLogger(__name__).info("http.fetch: the sandbox's answer cannot be read")
        return ToolResult(text="The sandbox's answer cannot be read.", is_error=True, code="FETCH_FAILED")


def _rules(url: str, allowed: EgressRules) -> EgressRules:
    """The profile's rules for this host alone: a program in the sandbox that lies about the URL gets nowhere else."""
    if not allowed:
        message = (
            "This session's profile allows no host. An operator gives it `egress` rules; see docs/reference/egress.md."
        )
        raise _Refused("NO_EGRESS", message)
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise _Refused("INVALID_URL", "Leave user and password out of the URL.")
        host = hosts.canonical(parts.hostname or "")
        port = parts.port
    except (BadName, ValueError) as error:
        raise _Refused("INVALID_URL", f"The URL names no host that is certain: {error}.") from error
    protocol = Protocol.TLS if parts.scheme == "https" else Protocol.HTTP
    asked = port or (HTTPS_PORT if protocol is Protocol.TLS else HTTP_PORT)
    if allowed.find(host, asked, protocol) is None:
        raise _Refused("HOST_NOT_ALLOWED", _other_ways(host, asked, protocol, allowed))
    return within_hosts(allowed, (host,))


def _other_ways(host: str, port: int, protocol: Protocol, allowed: EgressRules) -> str:
    place = f"{'https' if protocol is Protocol.TLS else 'http'}://{hosts.in_url(host)}:{port}"
    known = [rule for rule in allowed.rules if hosts.covers(rule.host, host)]
    if not known:
        return f"This session's profile does not allow {place}."
    ways = ", ".join(
        f"{'https' if rule.protocol is Protocol.TLS else 'http'}://{hosts.in_url(host)}:{number}"
        for rule in known
        for number in rule.reached_ports
    )
    return f"This session's profile does not allow {place}; of this host it allows {ways}."


def _check_headers(headers: dict[str, str]) -> None:
    for name in headers:
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise _Refused("INVALID_HEADER", f"The header `{name}` cannot be set; CodeSDK writes it.")


def _not_run(ended: ExecResult, stderr: bytes, clean: Callable[[str], str]) -> ToolResult:
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


def _answer(given: dict[str, Any], head: dict[str, Any], body: bytes, bench: Bench) -> ToolResult:
    if "error" in head:
        text = f"{given['url']}: {bench.clean(str(head['message']))[:1000]}"
        return ToolResult(text=text, is_error=True, code=head["error"] if head["error"] in _ERRORS else "FETCH_FAILED")
    headers: dict[str, str] = {}
    for name, value in head["headers"]:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    content_type = headers.get("content-type", "")
    if bench.redactor is not None:
        body = bench.redactor.clean(body, is_cut=bool(head["cut"]))
    whole = _text(body, content_type, cut=bool(head["cut"]))
    shown = None if whole is None else whole[: bench.profile.show_output_bytes]
    artifact = shown is None or shown != whole
    if artifact:
        media = _MEDIA.match(content_type.lower())
        bench.attach(Attachment("body", media[0] if media else "application/octet-stream", body))
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
        text="\n".join(_words(structured, str(head["reason"]), content_type)),
        structured=structured,
        is_error=failed,
        code="HTTP_ERROR" if failed else None,
    )


def _text(body: bytes, content_type: str, *, cut: bool) -> str | None:
    """The body as text; None where it is none. What is not UTF-8 but says that it is text shows U+FFFD."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        inside = cut and error.start >= len(body) - 3  # cut in the middle of a character
        plain = content_type.lower().startswith(_TEXTS)
        return body.decode("utf-8", "ignore" if inside else "replace") if inside or plain else None


def _words(answer: dict[str, Any], reason: str, content_type: str) -> list[str]:
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
