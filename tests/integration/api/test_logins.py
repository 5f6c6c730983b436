"""Clients that log in at the MCP endpoint with a token of an issuer, whose keys are fetched over HTTP."""

from __future__ import annotations

import ipaddress
import json
import time

import pytest

from codesdk.domain.network.addresses import public_only
from codesdk.tenancy.logins import JwksCache, KeysUnavailable, make_fetch
from codesdk.tenancy.logins.issuers import Algorithm
from issuers import Mint
from receivers import receiving

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "server/discover",
}


def logins_file(path, url, audience, **more):
    entry = {"issuer": url, "audience": audience, "tenant": "default", "roles": ["developer"], "allow_http": True}
    path.write_text(json.dumps({"version": 1, "issuers": [{**entry, **more}]}))  # JSON is YAML
    return str(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory, helpers):
    """A stack that takes logins of a small issuer on loopback."""
    root = tmp_path_factory.mktemp("logins")
    with receiving() as receiver:
        mint = Mint(receiver.url)

        def answer(got):
            found = mint.fetch(None, receiver.url + got.path)
            return 200, {"content-type": "application/json"}, json.dumps(found).encode()

        receiver.answer = answer
        logins = logins_file(
            root / "logins.yaml", receiver.url, mint.audience, networks=["127.0.0.0/8"], scopes=["codesdk"]
        )
        with helpers.running(root, 10.0, logins_file=logins) as stack:
            stack.key()  # makes the tenant
            yield stack, mint


def ask(stack, token, path="/mcp", method="POST", **headers):
    with stack.http() as http:
        sent = {**HEADERS, **headers, **({"authorization": f"Bearer {token}"} if token else {})}
        return http.request(method, path, headers=sent, json=DISCOVER if method == "POST" else None)


def good(mint, **more):
    return mint.token(time.time(), **{"scope": "codesdk", **more})


def test_who_comes_without_a_token_is_told_where_to_get_one(world):
    stack, mint = world
    answer = ask(stack, None)
    assert answer.status_code == 401
    metadata = f"{stack.url}/.well-known/oauth-protected-resource/mcp"
    assert answer.headers["www-authenticate"] == (
        f'Bearer realm="codesdk", resource_metadata="{metadata}", scope="codesdk"'
    )
    with stack.http() as http:
        told = http.get(metadata).json()
        assert http.get("/.well-known/oauth-protected-resource").json() == told
    assert told == {
        "resource": stack.mcp_url,
        "resource_name": "CodeSDK",
        "authorization_servers": [mint.url],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["codesdk"],
    }


def test_a_login_opens_a_session_at_its_first_request_and_stays_in_it(world):
    stack, mint = world
    assert ask(stack, good(mint, sub="first")).status_code == 200
    assert ask(stack, good(mint, sub="first")).status_code == 200
    ours = [s for s in stack.services.sessions.list_all_open() if s.runtime == "mcp-login"]
    assert len(ours) == 1
    assert ask(stack, good(mint, sub="first"), **{"codesdk-session": ours[0].id}).status_code == 200
    assert ask(stack, good(mint, sub="second"), **{"codesdk-session": ours[0].id}).status_code == 404


def test_a_bad_token_and_one_without_the_scope_are_told_apart(world):
    stack, mint = world
    expired = ask(stack, good(mint, exp=1))
    assert (expired.status_code, 'error="invalid_token"' in expired.headers["www-authenticate"]) == (401, True)
    assert "expired" in expired.json()["error"]["message"]
    lacking = ask(stack, good(mint, scope="openid"))
    assert (lacking.status_code, 'error="insufficient_scope"' in lacking.headers["www-authenticate"]) == (403, True)
    assert ask(stack, good(mint, aud="https://other.example.com")).status_code == 401
    assert ask(stack, good(mint, pad="x" * 20_000)).status_code in (401, 431)


@pytest.mark.parametrize("name", ["access_token", "%61ccess_token"])
def test_a_token_in_the_address_is_refused_even_where_it_is_good(world, name):
    stack, mint = world
    answer = ask(stack, good(mint), path=f"/mcp?{name}={good(mint)}")
    assert answer.status_code == 400
    assert "header" in answer.json()["error"]["message"]


def test_a_login_opens_nothing_but_the_mcp_endpoint(world):
    stack, mint = world
    with stack.http(good(mint)) as http:
        assert http.get("/v1/sessions").status_code == 401


def test_keys_at_a_private_address_are_not_fetched(tmp_path, helpers, caplog):
    with receiving() as receiver:
        mint = Mint(receiver.url)
        logins = logins_file(tmp_path / "logins.yaml", receiver.url, mint.audience)  # no `networks`
        with helpers.running(tmp_path, 10.0, logins_file=logins) as stack:
            stack.key()
            answer = ask(stack, good(mint))
            assert answer.status_code == 503
            # What lies where on our side is the operator's to read, not a stranger's.
            assert "loopback" not in answer.text
            assert "loopback" in caplog.text
            assert receiver.got == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((302, {"location": "http://127.0.0.1:1/"}, b""), "HTTP 302"),
        ((200, {}, b"x" * 300_000), "bytes"),
        ((200, {}, b"[]"), "JSON object"),
        ((200, {}, b"[" * 100_000), "does not return JSON"),
        (
            (200, {}, b'{"issuer": "http://other.example.com", "jwks_uri": "http://other.example.com"}'),
            "another issuer",
        ),
    ],
)
def test_an_issuer_that_misbehaves_is_bounded_and_lets_nobody_in(answer, said):
    with receiving() as receiver:
        receiver.answer = lambda _: answer
        issuer = Mint(receiver.url).issuer(allow_http=True, networks=["127.0.0.0/8"])
        fetch = make_fetch(lambda _: [ipaddress.ip_address("127.0.0.1")], public_only, time.monotonic, lambda: None)
        with pytest.raises(KeysUnavailable, match=said):
            JwksCache(fetch, time.monotonic).key(issuer, "one", Algorithm.RS256)
