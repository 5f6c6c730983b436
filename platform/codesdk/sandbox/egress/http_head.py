"""Strict parser and writer of HTTP/1 heads: rejects everything that two implementations could read differently. Pure.

Not h11: it accepts bare LF, folded lines, repeated Content-Length and a Transfer-Encoding next to it, and it rejects the
HTTP/1.1 CONNECT without Host that some clients send.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codesdk.domain.network.hostnames import InvalidHostname, canonical_host
from codesdk.sandbox.egress.rules import HTTP_PORT

MAX_HEAD = 32 * 1024
MAX_FIELDS = 128
END = b"\r\n\r\n"
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "trailers", "transfer-encoding", "upgrade", "http2-settings"}
)  # fmt: skip
_NOT_NAMED_BY_CONNECTION = frozenset({"host", "content-length", "authorization", "cookie", "content-type"})
"""Fields that a `Connection` header must not remove, because the request's meaning depends on them."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"[\x21-\x7e]+")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\%]+):([0-9]{1,5})")
_VERSIONS = ("HTTP/1.0", "HTTP/1.1")
_MAX_LENGTH_DIGITS = 15

Fields = tuple[tuple[str, str], ...]


class BadHead(ValueError):
    """Not an HTTP/1 head, or an ambiguous one."""


@dataclass(frozen=True)
class Target:
    """A request's destination."""

    host: str
    """Canonical."""
    port: int


@dataclass(frozen=True)
class Head:
    """Header fields in order, with values decoded as Latin-1."""

    fields: Fields

    def all(self, name: str) -> list[str]:
        """All values of a field; `name` in lower case."""
        return [value for key, value in self.fields if key.lower() == name]

    def without(self, names: frozenset[str]) -> Fields:
        """The fields except these."""
        return tuple((key, value) for key, value in self.fields if key.lower() not in names)


@dataclass(frozen=True)
class Request(Head):
    """A request to a proxy."""

    method: str
    target: Target
    path: str | None
    """Path and query of an absolute `http://` URL; None for CONNECT."""
    version: str


@dataclass(frozen=True)
class Response(Head):
    """A response of the upstream."""

    status: int
    reason: str


@dataclass(frozen=True)
class Framing:
    """Body framing: `length` bytes, chunked, or, with neither (responses only), until the connection closes."""

    length: int | None = None
    chunked: bool = False


def request(head: bytes) -> Request:
    """Parse a request head, including its final empty line.

    Raises:
        BadHead: not exactly one proxy request for one host.
    """
    lines = _lines(head)
    parts = lines[0].split(" ")
    if len(parts) != 3 or parts[2] not in _VERSIONS:  # noqa: PLR2004 - method, target, version
        raise BadHead("the first line is not an HTTP/1 request")
    method, target, version = parts
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise BadHead("the first line is not an HTTP/1 request")
    fields = _fields(lines[1:])
    if method == "CONNECT":
        made = Request(fields, method, _authority(target), None, version)
    else:
        place, path = _absolute(target)
        made = Request(fields, method, place, path, version)
    _check_host(made)
    return made


def response(head: bytes) -> Response:
    """Parse a response head, including its final empty line.

    Raises:
        BadHead: not a response head.
    """
    lines = _lines(head)
    version, _, rest = lines[0].partition(" ")
    status, _, reason = rest.partition(" ")
    if version not in _VERSIONS or not re.fullmatch(r"[1-9][0-9]{2}", status):
        raise BadHead("the first line is not an HTTP/1 response")
    return Response(_fields(lines[1:]), int(status), reason)


def _lines(head: bytes) -> list[str]:
    if not head.endswith(END):
        raise BadHead("the head has no end")
    lines = head[: -len(END)].decode("latin-1").split("\r\n")
    for line in lines:
        if not _VALUE.fullmatch(line):  # also a lone CR or LF, and NUL
            raise BadHead("a control character in the head")
    return lines


def _fields(lines: list[str]) -> Fields:
    if len(lines) > MAX_FIELDS:
        raise BadHead(f"more than {MAX_FIELDS} header fields")
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):  # also a folded line, and a space before the colon
            raise BadHead("a line that is not a header field")
        found.append((name, value.strip(" \t")))
    return tuple(found)


def _authority(text: str) -> Target:
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise BadHead("CONNECT names no host and port")
    return _target(found[1], int(found[2]))


def _target(host: str, port: int) -> Target:
    if not 1 <= port <= 65_535:  # noqa: PLR2004 - TCP
        raise BadHead("an invalid port")
    if not host.isascii():
        raise BadHead("a host that is not ASCII")
    try:
        return Target(canonical_host(host), port)
    except InvalidHostname as error:
        raise BadHead(str(error)) from error


def _absolute(text: str) -> tuple[Target, str]:
    scheme, separator, rest = text.partition("://")
    if scheme.lower() != "http" or not separator:
        raise BadHead("the request names no http:// URL; https:// goes through CONNECT")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    if "#" in text:
        raise BadHead("the URL has a fragment, which no request carries")
    path = rest[len(authority) :]
    if not path.startswith("/"):
        path = "/" + path
    with_port = authority if re.search(r":[0-9]*\Z", authority) else f"{authority}:{HTTP_PORT}"
    return _authority(with_port), path


def _check_host(made: Request) -> None:
    """Require exactly one Host, equal to the target. It may be missing in HTTP/1.0 and CONNECT."""
    hosts = made.all("host")
    if not hosts and (made.version == "HTTP/1.0" or made.path is None):
        return
    if len(hosts) != 1:
        raise BadHead("there must be one Host field")
    default = made.target.port if made.method == "CONNECT" else HTTP_PORT
    text = hosts[0] if re.search(r":[0-9]+\Z", hosts[0]) else f"{hosts[0]}:{default}"
    if _authority(text) != made.target:
        raise HostDiffers(f"the request is for {made.target.host}:{made.target.port}, its Host says {hosts[0][:100]!r}")


class HostDiffers(BadHead):
    """Host and target differ."""


def request_framing(made: Request) -> Framing:
    """The request's body framing.

    Raises:
        BadHead: both a length and chunks, several lengths, or a coding other than `chunked`.
    """
    lengths, codings = made.all("content-length"), made.all("transfer-encoding")
    if codings:
        if lengths or made.version == "HTTP/1.0" or [item.lower() for item in codings] != ["chunked"]:
            raise BadHead("Transfer-Encoding other than `chunked` alone")
        return Framing(chunked=True)
    return Framing(length=_length(lengths) or 0)


def response_framing(made: Response, method: str) -> Framing:
    """The response's body framing.

    Raises:
        BadHead: several lengths, or a coding other than `chunked`.
    """
    if method == "HEAD" or made.status in (204, 304):
        return Framing(length=0)
    lengths, codings = made.all("content-length"), made.all("transfer-encoding")
    if codings:
        if lengths or [item.lower() for item in codings] != ["chunked"]:
            raise BadHead("Transfer-Encoding other than `chunked` alone")
        return Framing(chunked=True)
    return Framing(length=_length(lengths))


def _length(values: list[str]) -> int | None:
    if not values:
        return None
    if len(values) > 1 or not re.fullmatch(rf"[0-9]{{1,{_MAX_LENGTH_DIGITS}}}", values[0]):
        raise BadHead("a Content-Length that is not one number")
    return int(values[0])


def forwarded(made: Request | Response) -> Fields:
    """The fields to forward: without hop-by-hop fields and those that `Connection` names.

    Raises:
        BadHead: `Connection` names an end-to-end field such as Host.
    """
    named = {item.strip().lower() for value in made.all("connection") for item in value.split(",")}
    if named & _NOT_NAMED_BY_CONNECTION:
        raise BadHead("Connection names a field that is not about the connection")
    return made.without(HOP_BY_HOP | frozenset(named))


def set_field(fields: Fields, name: str, value: str) -> Fields:
    """The fields with this one replaced or added."""
    return (*((key, old) for key, old in fields if key.lower() != name.lower()), (name, value))


def write_request(made: Request, host: str, fields: Fields) -> bytes:
    """An origin-form request head; Host comes first and is set by the proxy."""
    rest = tuple((key, value) for key, value in fields if key.lower() != "host")
    return _write(f"{made.method} {made.path} {made.version}", (("Host", host), *rest))


def write_response(made: Response, fields: Fields) -> bytes:
    """A response head."""
    return _write(f"HTTP/1.1 {made.status} {made.reason}", fields)


def answer(status: int, reason: str, text: str, *, extra: Fields = ()) -> bytes:
    """A response from the proxy itself."""
    body = f"{text}\n".encode("ascii", "backslashreplace")
    fields: Fields = (
        *extra,
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    )
    return _write(f"HTTP/1.1 {status} {reason}", fields) + body


def _write(first: str, fields: Fields) -> bytes:
    return "\r\n".join((first, *(f"{name}: {value}" for name, value in fields), "", "")).encode("latin-1")
