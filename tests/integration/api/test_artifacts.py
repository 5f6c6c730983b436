"""Artifacts over HTTP: streamed in and out, in parts, and refusals."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import tracemalloc
from contextlib import suppress
from urllib.parse import urlsplit

import httpx2
import pytest

from codesdk.api.routes import artifacts as routes
from codesdk.api.tenant_slots import ROUTES_AT_ONCE
from codesdk.artifacts.digests import CHUNK_BYTES
from codesdk.tenancy.principal import Role

MIB = 1024 * 1024


@pytest.fixture
def stack(standing):
    return standing


@pytest.fixture
def operator(stack, request):
    """An operator of a tenant that no other test has."""
    with stack.http(stack.key(Role.OPERATOR, tenant=request.node.name[:100])) as client:
        yield client


def put(client, content=b"0123456789", **params):
    answer = client.post("/v1/artifacts", params=params, content=content)
    assert answer.status_code == 201, answer.text
    return answer.json()


def file_of(stack, made):
    digest = made["content_hash"].removeprefix("sha256:")
    return next((stack.settings.data_dir / "artifacts" / digest[:2]).glob(f"{digest}*"))


@pytest.mark.parametrize(
    ("asked", "status", "content", "range_"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-3,5-6", 200, b"0123456789", None),
        ("lines=0-3", 200, b"0123456789", None),
        ("bytes=3-1", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
    ],
)
def test_a_range_is_served_or_ignored_as_the_rfc_has_it(operator, asked, status, content, range_):
    made = put(operator)
    answer = operator.get(f"/v1/artifacts/{made['id']}", headers={"Range": asked})
    assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (status, content, range_)
    head = operator.head(f"/v1/artifacts/{made['id']}", headers={"Range": asked})
    assert (head.status_code, head.content, head.headers["content-length"]) == (status, b"", str(len(content)))


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_past_the_end_says_how_long_it_is(operator, asked):
    made = put(operator)
    answer = operator.get(f"/v1/artifacts/{made['id']}", headers={"Range": asked})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10")
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_the_caller_has_already_is_not_sent_again(operator):
    made = put(operator)
    path, etag = f"/v1/artifacts/{made['id']}", f'"{made["content_hash"]}"'
    assert operator.get(path).headers["etag"] == etag
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = operator.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content) == (304, b"")
    assert operator.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    part = {"Range": "bytes=0-1"}
    assert operator.get(path, headers={**part, "If-Range": etag}).status_code == 206
    assert operator.get(path, headers={**part, "If-Range": '"other"'}).status_code == 200


def test_what_a_tool_wrote_cannot_run_in_a_browser_in_our_name(operator):
    made = operator.post(
        "/v1/artifacts",
        params={"name": 'a"\r\nSet-Cookie: x=1; "<script>.html'},
        content=b"<script>alert(1)</script>",
        headers={"Content-Type": "text/html"},
    ).json()
    headers = operator.get(f"/v1/artifacts/{made['id']}").headers
    assert headers["content-type"] == "text/html"
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert headers["content-disposition"].startswith("attachment; filename*=UTF-8''a%22%0D%0ASet-Cookie")
    assert "set-cookie" not in headers


def test_the_list_is_the_tenants_newest_first_in_pages(operator):
    made = [put(operator, b"%d" % number)["id"] for number in range(5)][::-1]
    first = operator.get("/v1/artifacts", params={"limit": 3}).json()["artifacts"]
    rest = operator.get("/v1/artifacts", params={"limit": 3, "after": first[-1]["id"]}).json()["artifacts"]
    assert [one["id"] for one in first + rest] == made
    assert "blob_key" not in first[0]


def test_a_deleted_artifact_is_gone(operator):
    made = put(operator)
    assert operator.delete(f"/v1/artifacts/{made['id']}").json()["id"] == made["id"]
    assert operator.get(f"/v1/artifacts/{made['id']}").status_code == 404
    assert operator.get("/v1/artifacts").json() == {"artifacts": []}


def test_a_large_one_passes_through_in_little_memory(stack, operator):
    size, piece = 128 * MIB, secrets.token_bytes(MIB)
    tracemalloc.start()
    try:
        made = put(operator, (piece for _ in range(size // MIB)))
        with operator.stream("GET", f"/v1/artifacts/{made['id']}") as answer:
            got = sum(len(part) for part in answer.iter_raw())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (made["size"], got) == (size, size)
    assert peak < 32 * MIB, f"server and client together took {peak / MIB:.0f} MiB"  # 64 MiB and more before
    stack.services.artifacts.delete(made["tenant_id"], made["id"])


def test_a_body_over_the_limit_is_refused_and_leaves_nothing(stack, operator, monkeypatch):
    monkeypatch.setattr(stack.services.artifacts._incoming, "_limit", 3 * MIB)
    answer = operator.post("/v1/artifacts", content=(b"x" * MIB for _ in range(4)))
    assert (answer.status_code, answer.json()["code"]) == (413, "ARTIFACT_TOO_LARGE")
    assert list((stack.settings.data_dir / "artifacts" / "incoming").iterdir()) == []


def test_a_sender_that_goes_away_leaves_nothing(stack, operator, helpers):
    def broken():
        yield b"x" * MIB
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        operator.post("/v1/artifacts", content=broken())
    incoming = stack.settings.data_dir / "artifacts" / "incoming"
    helpers.eventually(lambda: not list(incoming.iterdir()))
    assert operator.get("/v1/artifacts").json() == {"artifacts": []}


def test_a_sender_that_says_nothing_is_sent_away(operator, monkeypatch):
    monkeypatch.setattr(routes, "RECEIVE_TIMEOUT_S", 0.2)
    stop = threading.Event()

    def silent():
        yield b"x"
        stop.wait(20)
        yield b"x"

    def send():
        with suppress(httpx2.TransportError):  # the connection may be closed before the answer is read
            assert operator.post("/v1/artifacts", content=silent()).status_code == 408

    sending = threading.Thread(target=send)
    sending.start()
    stop.wait(1.0)
    stop.set()
    sending.join(20)
    assert not sending.is_alive()
    assert operator.get("/v1/artifacts").json() == {"artifacts": []}


def test_slow_uploads_of_one_tenant_hold_up_no_other(stack, operator, request):
    key, other = (stack.key(tenant=f"{name}-{request.node.name}"[:30]) for name in ("slow", "other"))
    place = urlsplit(stack.url)
    senders = []
    for _ in range(2 * ROUTES_AT_ONCE["POST", "/v1/artifacts"]):
        sender = socket.create_connection((place.hostname, place.port), timeout=30)
        head = f"POST /v1/artifacts HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {key}\r\nContent-Length: 9\r\n\r\nx"
        sender.sendall(head.encode())
        senders.append(sender)
    try:
        with stack.http(other) as client:
            assert put(client)["size"] == 10
        for sender in senders:
            sender.sendall(b"12345678")
        assert {sender.recv(12) for sender in senders} == {b"HTTP/1.1 201"}  # its own waited for each other
    finally:
        for sender in senders:
            sender.close()


def test_damage_before_the_first_byte_is_a_problem_and_later_breaks_the_download_off(stack, operator):
    content = secrets.token_bytes(3 * CHUNK_BYTES)
    made = put(operator, content)
    path, file = f"/v1/artifacts/{made['id']}", file_of(stack, made)
    with file.open("r+b") as stored:
        stored.seek(2 * CHUNK_BYTES)
        stored.write(bytes([content[2 * CHUNK_BYTES] ^ 1]))
    got = bytearray()
    with operator.stream("GET", path) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):
            got.extend(part for raw in answer.iter_raw() for part in raw)
    assert operator.get(path, headers={"Range": f"bytes=0-{2 * CHUNK_BYTES - 1}"}).content == content[: 2 * CHUNK_BYTES]
    os.truncate(file, 10)
    answer = operator.get(path)
    assert (answer.status_code, answer.json()["code"]) == (500, "ARTIFACT_DAMAGED")
    assert "Put the same bytes again" in answer.json()["advice"]
    put(operator, content)
    assert operator.get(path).content == content
