"""Fetches one URL inside a sandbox, through the proxy that its environment names; for Python 3.9 and later.

Stdin: the request as JSON. Stdout: one line of JSON, then the body's bytes. `fetch` sends and reads both; nothing of the
request stands in the command line, where other processes of the sandbox could read it.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import sys
from urllib.parse import unquote, urljoin, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SEE_OTHER = 303
_REDIRECTS = (301, 302, 303, 307, 308)
_POST_BECOMES_GET = (301, 302)
_MAX_HEADER_CHARACTERS = 8192
"""Characters of a header's value that are told."""


class FetchFailed(Exception):
    """No answer; with a word for the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def origin(url: str) -> tuple[str, str, int]:
    """What must stay the same for a redirect to be followed."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)


class Proxy:
    """The egress proxy, as HTTP_PROXY names it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not parts.port:
            raise FetchFailed("NO_EGRESS", "this sandbox has no egress proxy")
        self.place = (parts.hostname, parts.port)
        credential = unquote(parts.username or "") + ":" + unquote(parts.password or "")
        self.authorization = "Basic " + base64.b64encode(credential.encode()).decode()
        self.timeout_s = timeout_s

    def connection(self, url: str) -> http.client.HTTPConnection:
        """Ready for a request: to the proxy itself for http, through a tunnel for https."""
        scheme, host, port = origin(url)
        if scheme == "http":
            return http.client.HTTPConnection(*self.place, timeout=self.timeout_s)
        made = http.client.HTTPConnection(host, port, timeout=self.timeout_s)
        made.sock = self._tunnel(host, port)
        return made

    def _tunnel(self, host: str, port: int) -> ssl.SSLSocket:
        name = "[" + host + "]" if ":" in host else host
        line = "CONNECT {0}:{1} HTTP/1.1\r\nHost: {0}:{1}\r\nProxy-Authorization: {2}\r\n\r\n"
        sock = socket.create_connection(self.place, self.timeout_s)
        sock.sendall(line.format(name, port, self.authorization).encode())
        answer = http.client.HTTPResponse(sock, method="CONNECT")
        answer.begin()
        if answer.status != http.client.OK:
            raise proxy_refusal(answer)
        return ssl.create_default_context().wrap_socket(sock, server_hostname=host)


def proxy_refusal(answer: http.client.HTTPResponse) -> FetchFailed:
    """The proxy's "no"."""
    reason = answer.headers.get("X-CodeSDK-Egress", "refused")
    detail = answer.read(1000).decode("utf-8", "replace").strip()
    return FetchFailed("EGRESS_REFUSED", reason + (": " + detail if detail else ""))


def send_request(
    proxy: Proxy, asked: dict[str, Any], url: str, method: str, body: bytes | None
) -> http.client.HTTPResponse:
    """Send one request and read the head of its answer."""
    scheme, _, _ = origin(url)
    parts = urlsplit(url)
    path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
    made = proxy.connection(url)
    made.putrequest(method, url if scheme == "http" else path, skip_host=True, skip_accept_encoding=True)
    made.putheader("Host", parts.netloc)
    if scheme == "http":
        made.putheader("Proxy-Authorization", proxy.authorization)
    headers = {
        "User-Agent": "codesdk-http-fetch",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    headers.update({name.title(): value for name, value in asked["headers"].items()})
    for name, value in headers.items():
        made.putheader(name, value)
    if body is not None:
        made.putheader("Content-Length", str(len(body)))
    made.endheaders(body)
    answer = made.getresponse()
    if scheme == "http" and answer.headers.get("X-CodeSDK-Egress"):
        raise proxy_refusal(answer)
    return answer


def fetch(proxy: Proxy, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The last answer, and what led to it; a redirect to another origin is not followed but given back."""
    url, method = asked["url"], asked["method"]
    body = asked["body"].encode() if asked["body"] is not None else None
    visited: list[str] = []
    while True:
        answer = send_request(proxy, asked, url, method, body)
        where = answer.headers.get("Location")
        further = urljoin(url, where).partition("#")[0] if where and answer.status in _REDIRECTS else None
        if further is None or origin(further) != origin(url) or len(visited) >= asked["redirects"]:
            break
        visited.append(url)
        if answer.status == _SEE_OTHER or (answer.status in _POST_BECOMES_GET and method == "POST"):
            method, body = ("HEAD" if method == "HEAD" else "GET"), None
        url = further
    try:
        content = answer.read(asked["max_bytes"] + 1)
    except http.client.IncompleteRead as error:
        content = error.partial
        raise FetchFailed("CUT_OFF", "the connection ended after %d bytes of the body" % len(content)) from error
    head = {
        "url": url,
        "status": answer.status,
        "reason": answer.reason,
        "headers": [[name.lower(), value[:_MAX_HEADER_CHARACTERS]] for name, value in answer.headers.items()],
        "redirects": visited,
        "location": further,
        "cut": len(content) > asked["max_bytes"],
    }
    return head, content[: asked["max_bytes"]]


def main() -> None:
    """Answer on stdout, also where it failed."""
    asked = json.load(sys.stdin)
    content = b""
    try:
        head, content = fetch(Proxy(os.environ.get("HTTP_PROXY", ""), asked["timeout_s"]), asked)
    except FetchFailed as failed:
        head = {"error": failed.code, "message": str(failed)}
    except ssl.SSLError as error:
        head = {"error": "TLS_FAILED", "message": getattr(error, "verify_message", "") or str(error)}
    except (TimeoutError, socket.timeout):
        head = {"error": "TIMEOUT", "message": "no answer within %g s" % asked["timeout_s"]}
    except (OSError, http.client.HTTPException, ValueError) as error:
        head = {"error": "FETCH_FAILED", "message": type(error).__name__ + ": " + str(error)}
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + content)


if __name__ == "__main__":
    main()
