"""Remote servers: a real server of the official SDK, on loopback, which the operator allows."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mcp.server.mcpserver import Context, MCPServer

from codesdk.sources.faults import SourceFault, SourceTimeout, SourceUnavailable
from far_sources import Reached, served
from source_stage import until


class Far:
    """The server's process, as far as the tests look into it."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.cancelled = threading.Event()
        self.redirect = ""
        self.flood = False
        self.encoded = False
        self.url = ""


def _made(far: Far) -> MCPServer:
    server = MCPServer("far")

    @server.tool(description="Says it again.")
    def echo(text: str) -> str:
        return text

    @server.tool(description="Adds two numbers.")
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(description="Takes its time.")
    async def slow(ctx: Context) -> str:
        try:
            for step in range(600):
                await ctx.report_progress(step, 600, f"step {step}")
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            far.cancelled.set()
            raise
        return "done"

    return server


@contextmanager
def _served(far: Far) -> Iterator[None]:
    app = _made(far).streamable_http_app()

    async def watched(scope, receive, send):
        if scope["type"] == "http":
            far.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            if far.redirect:
                headers = [(b"location", far.redirect.encode()), (b"content-length", b"0")]
                await send({"type": "http.response.start", "status": 307, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
            if far.encoded:
                head = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                await send({"type": "http.response.body", "body": gzip.compress(b" " * 1_000_000)})
                return
            if far.flood:
                head = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 200, "headers": head})
                for _ in range(200):
                    await send({"type": "http.response.body", "body": b" " * 100_000, "more_body": True})
                await send({"type": "http.response.body", "body": b"{}"})
                return
        await app(scope, receive, send)

    with served(watched) as far.url:
        yield


@pytest.fixture
def far():
    made = Far()
    with _served(made):
        yield made


def _stage(stage, here, far, **more):
    url = more.pop("url", far.url)
    return Reached(stage, here, here._instance, here.image, argv=[], url=url, **more)


@pytest.fixture
def reached(stage, here, far):
    made = _stage(stage, here, far)
    made.accept()
    yield made
    made.close()


def test_a_server_elsewhere_is_called_like_any(reached):
    assert reached.call("echo", text="hello").structured == {"result": "hello"}
    assert reached.call("add", a=2, b=3).structured == {"result": 5}
    assert reached.owners() == []


def test_its_progress_passes_and_a_withdrawn_call_is_told_to_it(reached, far):
    asked = reached.asked("slow")
    future = reached.begin(asked)
    until(lambda: reached.lines, "progress")
    assert reached.desk.cancel(asked.identity)
    assert future.result(60).code == "CANCELLED"
    assert far.cancelled.wait(60)


def test_a_call_that_is_not_answered_ends_in_its_time(reached):
    with pytest.raises(SourceTimeout):
        reached.desk.call(reached.asked("slow", timeout_s=0.5))


def test_a_tool_that_changed_is_taken_away(reached):
    path = reached.tools / "fx.pins.json"
    pins = json.loads(path.read_text())
    echo = next(tool for tool in pins["tools"] if tool["name"] == "echo")
    from codesdk.registry.pins import OfferedTool, pin_tool  # noqa: PLC0415

    echo["description"] = "Says it again, as it did last year."
    echo["sha256"] = pin_tool(OfferedTool(**{name: echo.get(name) for name in OfferedTool.model_fields})).sha256
    path.write_text(json.dumps(pins))
    reached.registry.refresh()
    reached.call("add", a=1, b=1)
    reached.registry.refresh()
    assert reached.registry.shared.resolve("fx.echo").withheld


def test_a_secret_of_the_tenant_is_a_header_of_its_requests_and_of_no_other_tenants(stage, here, far):
    header = {"header": "X-Token", "secret": "token", "prefix": "Bearer "}
    made = _stage(stage, here, far, headers=[header])
    made.desk._secret_problem = lambda tenant, name: "" if (tenant, name) in made.values else "there is none"
    made.values = {(stage.subject.tenant_id, "token"): "s3cret"}
    try:
        made.accept()
        assert made.call("echo", text="x").text == "x"
        assert {head.get("x-token") for head in far.headers} == {"Bearer s3cret"}
        refused = made.desk.call(made.asked("echo", tenant="ten_other", text="x"))
        assert refused.code == "SECRET_MISSING"
    finally:
        made.close()


def test_an_address_that_the_operator_did_not_allow_is_not_connected_to(stage, here, far):
    made = _stage(stage, here, far)
    made.networks = ()
    try:
        with pytest.raises(SourceUnavailable, match="not reached by https"):
            made.listing()
        made.write(argv=[], url=far.url.replace("http:", "https:"))
        made.registry.refresh()
        with pytest.raises(SourceUnavailable, match="loopback"):
            made.listing()
        made.write(argv=[], url="https://public.example/mcp")
        made.registry.refresh()
        with pytest.raises(SourceUnavailable, match=r"public\.example leads to 127\.0\.0\.1: loopback"):
            made.listing()
        assert far.headers == []
    finally:
        made.close()


def test_a_redirect_to_another_place_is_not_followed(stage, here, far):
    made = _stage(stage, here, far)
    other = Far()
    try:
        with _served(other):
            far.redirect = other.url
            with pytest.raises(SourceFault):
                made.listing()
        assert other.headers == []
    finally:
        made.close()


def test_an_answer_without_end_is_cut_off(stage, here, far):
    made = _stage(stage, here, far)
    far.flood = True
    try:
        with pytest.raises(SourceFault):
            made.listing()
    finally:
        made.close()


def test_an_answer_that_would_unfold_is_not_taken(stage, here, far):
    made = _stage(stage, here, far)
    far.encoded = True
    try:
        with pytest.raises(SourceFault):
            made.listing()
        assert {headers.get("accept-encoding") for headers in far.headers} == {"identity"}
    finally:
        made.close()


def test_policy_may_keep_a_call_from_the_host_of_its_server(reached):
    asked = reached.asked("echo", text="x")
    assert reached.desk.call(reached.bounded(asked, egress=["other.example"])).code == "BOUND_NOT_MET"
    assert reached.desk.call(reached.bounded(asked, egress=["127.0.0.1"])).text == "x"


def test_a_server_that_is_not_there_says_so(stage, here, far):
    made = _stage(stage, here, far, url="http://127.0.0.1:9/mcp", start_s=5)
    try:
        with pytest.raises(SourceUnavailable):
            made.listing()
    finally:
        made.close()
