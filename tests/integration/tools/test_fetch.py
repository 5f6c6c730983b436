"""http.fetch from a real sandbox, through the real egress proxy, against servers that the test starts."""

from __future__ import annotations

import http.server
import json
import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.port import FileWrite
from codesdk.tools import ToolContext
from egress_stage import LOOPBACK, Attempts, Authority, rules
from sandboxes import run, spec
from stage import REPOSITORY
from tool_bench import bench, run_example, use

pytestmark = pytest.mark.engine
TOOL = Registry.load(REPOSITORY / "tool-registry").resolve("http.fetch")


class Pages(http.server.BaseHTTPRequestHandler):
    """Says what it was asked, and leads astray."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length).decode()
        self.server.asked.append((self.command, self.path, dict(self.headers), sent))
        answer = {
            "/status": (200, b"ok\n", {}),
            "/echo": (200, json.dumps([self.command, dict(self.headers), sent]).encode(), {}),
            "/binary": (200, bytes(range(256)), {"Content-Type": "image/png"}),
            "/long": (200, b"x" * 100_000, {}),
            "/huge": (200, b"y" * 3_000_000, {}),
            "/near": (302, b"", {"Location": "/status"}),
            "/circle": (302, b"", {"Location": "/circle"}),
            "/far": (302, b"", {"Location": "https://evil.example/taken"}),
            "/see": (303, b"", {"Location": "/echo"}),
            "/gone": (404, b"no such page", {}),
        }.get(self.path, (200, b"[]", {}))
        status, body, more = answer
        self.send_response(status)
        headers = {"Content-Type": "text/plain", "Content-Length": str(len(body)), **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815 (http.server's names)

    def log_message(self, *_arguments) -> None:
        """Silence."""


@contextmanager
def site(authority, host):
    """A server that speaks TLS for one name."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.asked = []
    server.daemon_threads = True
    server.socket = authority.server(host).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def docs(authority):
    with site(authority, "docs.example") as server:
        yield server


@pytest.fixture(scope="module")
def allowed(docs):
    """Both ways: TLS that the proxy adds, and TLS of the tool's own."""
    port = docs.server_address[1]
    return rules(
        {"host": "docs.example", "protocol": "http", "upstream": "https", "upstream_port": port},
        {"host": "docs.example", "ports": [port]},
        {"host": "evil.example", "ports": [port]},
    )


@pytest.fixture(scope="module")
def attempts(authority):
    with Attempts.served(tls=authority.client(), resolve=lambda _name: [LOOPBACK]) as made:
        yield made


@pytest.fixture(scope="module")
def world(engine, sandbox_image, attempts, allowed, authority):
    driver = DockerSandboxes(f"test-{uuid.uuid4().hex}", Engine(engine.host), egress=attempts.egress)
    try:
        made = driver.open(spec(driver._instance, sandbox_image, egress=allowed))
        made.files.write((FileWrite(path="authority.pem", content=authority.path.read_bytes()),))
        yield made
    finally:
        driver.sweep(())
        driver.close()


class Trusting(ToolContext):
    """Of a sandbox whose image trusts the test's authority."""

    def run(self, argv, on_output=None, **more):
        return super().run(argv, on_output, env={"SSL_CERT_FILE": "/workspace/authority.pem"}, **more)


@pytest.fixture
def fetch(world, allowed, attempts, docs):
    attempts.clear()
    docs.asked.clear()
    kept = []

    def ask(url, kind=ToolContext, egress=allowed, **given):
        at = bench(world, attach=kept.append)
        at = replace(at, profile=at.profile.model_copy(update={"egress": egress}))
        if kind is Trusting:
            at = Trusting(**{name: getattr(at, name) for name in at.__dataclass_fields__})
        return use(TOOL, {"url": url, **given}, at)

    ask.kept = kept
    return ask


@pytest.mark.parametrize("example", TOOL.examples, ids=lambda example: example.description)
def test_an_example_of_the_manifest_runs_as_it_says(example, world, allowed):
    profile = bench(world).profile.model_copy(update={"egress": allowed})
    trusted = world.files.read("authority.pem").data
    run_example(TOOL, example, world, profile)
    world.files.write((FileWrite(path="authority.pem", content=trusted),))


def test_a_request_goes_out_as_it_was_given(fetch, docs):
    result = fetch(
        "http://docs.example/echo?q=1#part",
        method="POST",
        headers={"X-Mine": "a b", "user-agent": "me"},
        body="caf\u00e9",
    )
    assert result.structured["status"] == 200
    method, path, headers, sent = docs.asked[0]
    assert (method, path, sent) == ("POST", "/echo?q=1", "caf\u00e9")
    # The proxy writes the name and port where it went.
    assert (headers["X-Mine"], headers["User-Agent"], headers["Host"]) == (
        "a b",
        "me",
        f"docs.example:{docs.server_address[1]}",
    )
    assert not any(name.lower().startswith("proxy") for name in headers)


def test_tls_of_the_tools_own_is_checked_by_the_sandboxs_authorities(fetch, docs, attempts):
    url = f"https://docs.example:{docs.server_address[1]}/status"
    assert fetch(url).code == "TLS_FAILED"
    assert docs.asked == []
    result = fetch(url, kind=Trusting)
    assert (result.is_error, result.structured["body"]) == (False, "ok\n")
    assert {item.host for item in attempts.all} == {"docs.example"}


def test_a_redirect_is_followed_within_its_origin_alone(fetch, docs, attempts):
    near = fetch("http://docs.example/near").structured
    assert (near["url"], near["body"]) == ("http://docs.example/status", "ok\n")
    assert near["redirects"] == ["http://docs.example/near"]
    far = fetch("http://docs.example/far")
    assert (far.structured["status"], far.structured["location"]) == (302, "https://evil.example/taken")
    assert "was not followed" in far.text
    assert {item.host for item in attempts.all} == {"docs.example"}
    assert len(fetch("http://docs.example/circle").structured["redirects"]) == 10
    still = fetch("http://docs.example/near", redirects="none").structured
    assert (still["status"], still["location"]) == (302, "http://docs.example/status")


def test_see_other_turns_a_post_into_a_get_without_its_body(fetch, docs):
    assert fetch("http://docs.example/see", method="POST", body="x").structured["status"] == 200
    assert [(method, sent) for method, _, _, sent in docs.asked] == [("POST", "x"), ("GET", "")]


def test_what_is_no_text_or_too_long_is_an_artifact(fetch):
    binary = fetch("http://docs.example/binary")
    assert (binary.structured["body"], binary.structured["artifact"]) == (None, True)
    long = fetch("http://docs.example/long")
    assert (18_000 < len(long.structured["body"]) < 20_000, long.structured["artifact"]) == (True, True)
    assert [(item.content_type, len(item.content)) for item in fetch.kept] == [
        ("image/png", 256),
        ("text/plain", 100_000),
    ]
    assert fetch.kept[0].content == bytes(range(256))
    assert not fetch("http://docs.example/status").structured["artifact"]


def test_no_more_is_read_than_was_asked_for(fetch):
    huge = fetch("http://docs.example/huge", max_bytes=2_000)
    assert (huge.structured["bytes"], huge.structured["truncated"]) == (2_000, True)
    assert "only 2000 bytes were read" in huge.text
    assert fetch("http://docs.example/huge").structured["bytes"] == 1024 * 1024
    whole = fetch("http://docs.example/huge", max_bytes=3_000_000).structured
    assert (whole["bytes"], whole["truncated"]) == (3_000_000, False)


def test_an_error_of_the_server_is_an_error_with_its_answer(fetch):
    gone = fetch("http://docs.example/gone")
    assert (gone.is_error, gone.code, gone.structured["body"]) == (True, "HTTP_ERROR", "no such page")
    assert fetch("http://docs.example/status", method="HEAD").structured["body"] == ""


@pytest.mark.parametrize(
    ("url", "more", "code", "words"),
    [
        ("http://other.example/", {}, "HOST_NOT_ALLOWED", "does not allow http://other.example:80."),
        ("https://docs.example/", {}, "HOST_NOT_ALLOWED", "it allows http://docs.example:80, https://docs.example:"),
        ("http://docs.example/", {"egress": DENY_ALL}, "NO_EGRESS", "profile allows no host"),
        ("http://docs.example@evil.example/", {}, "INVALID_URL", "Leave user"),
        ("http://2130706433/", {}, "INVALID_URL", "more than one way"),
        ("http://docs.example:x/", {}, "INVALID_URL", "no host that is certain"),
        ("http://docs.example/", {"headers": {"Host": "evil.example"}}, "INVALID_HEADER", "`Host`"),
        ("http://docs.example/", {"headers": {"proxy-authorization": "x"}}, "INVALID_HEADER", "`proxy-authorization`"),
    ],
)
def test_what_may_not_be_asked_is_refused_before_anything_is_sent(*, fetch, attempts, docs, url, more, code, words):
    result = fetch(url, **more)
    assert (result.is_error, result.code) == (True, code)
    assert words in result.text
    assert (attempts.all, docs.asked) == ([], [])


def test_the_proxy_has_the_last_word_on_an_address(fetch, attempts, monkeypatch):
    """The name is allowed and leads to a private address: the proxy's reason reaches the agent."""
    import ipaddress  # noqa: PLC0415

    dialer = attempts.egress._proxy._dialer
    monkeypatch.setattr(dialer, "_resolve", lambda _name: [ipaddress.ip_address("10.0.0.1")])
    result = fetch("http://docs.example/status")
    assert (result.is_error, result.code) == (True, "EGRESS_REFUSED")
    assert "address_refused" in result.text


def test_nothing_of_a_request_is_in_a_command_line(fetch, world, docs):
    mark = f"mark-{uuid.uuid4().hex}"
    seen = []

    def slow(self):
        look = "import glob\nfor p in glob.glob('/proc/[0-9]*/cmdline'):\n try: print(open(p).read())\n except OSError: pass"
        seen.append(run(world, "python3", "-c", look).stdout.decode())
        Pages.do_GET(self)

    docs.RequestHandlerClass.do_PUT, before = slow, docs.RequestHandlerClass.do_PUT
    try:
        result = fetch(f"http://docs.example/{mark}", method="PUT", headers={"X-Key": mark}, body=mark)
    finally:
        docs.RequestHandlerClass.do_PUT = before
    assert not result.is_error, result
    assert "Fetches one URL" in seen[0]
    assert mark not in seen[0]
