"""Secrets are added by the proxy, over TLS only, and are nowhere else."""

from __future__ import annotations

import pytest

from codesdk.sandbox.egress.connection_attempt import Reason
from egress_stage import HttpServer, Server, rules, staged

SECRET = "s3cr3t-value"


def with_secret(web, **more):
    rule = {
        "host": "api.example", "protocol": "http", "upstream": "https", "upstream_port": web.port,
        "inject": [{"header": "Authorization", "secret": "api-key", "prefix": "Bearer "}], **more,
    }  # fmt: skip
    return rules(rule)


GET = "GET http://api.example/v1 HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer of-the-tool\r\n{auth}\r\n\r\n"


@pytest.fixture
def api(make_server, authority):
    return make_server(HttpServer, tls=authority.server("api.example"))


def test_a_secret_is_added_over_tls_and_replaces_what_the_tool_sent(api, authority):
    asked = []

    def secrets(owner, name):
        asked.append((owner, name))
        return SECRET

    with staged(tls=authority.client(), secrets=secrets) as stage:
        stage.grant(with_secret(api))
        assert stage.ask(GET).read_all().endswith(b"ok")
        assert stage.last().reason is Reason.DONE
        head = api.requests[0].decode()
        assert f"Authorization: Bearer {SECRET}\r\n" in head
        assert "of-the-tool" not in head
        assert asked == [("sbx_1", "api-key")]
        assert stage.last().secrets == ("api-key",)
        assert SECRET not in "".join(item.model_dump_json() for item in stage.attempts)


@pytest.mark.parametrize("value", [None, "", " ", "a\r\nX-Evil: 1", "a\nb", "ünicode", "a\0"])
def test_without_a_proper_secret_nothing_is_sent(api, authority, value):
    with staged(tls=authority.client(), secrets=lambda _owner, _name: value) as stage:
        stage.grant(with_secret(api))
        assert stage.refused(GET)[0] is Reason.SECRET_UNAVAILABLE
    assert api.accepted == 0


def test_a_secret_store_that_fails_sends_nothing(api, authority):
    def fail(_owner, _name):
        raise RuntimeError(SECRET)

    with staged(tls=authority.client(), secrets=fail) as stage:
        stage.grant(with_secret(api))
        reason, answer = stage.refused(GET)
        assert reason is Reason.SECRET_UNAVAILABLE
        assert SECRET.encode() not in answer
    assert api.accepted == 0


def test_a_server_with_another_certificate_gets_no_secret(make_server, authority):
    impostor = make_server(HttpServer, tls=authority.server("evil.example"))
    with staged(tls=authority.client(), secrets=lambda _owner, _name: SECRET) as stage:
        stage.grant(with_secret(impostor))
        assert stage.refused(GET)[0] is Reason.UPSTREAM_TLS
    assert impostor.requests == []


def test_a_server_that_speaks_no_tls_gets_no_secret(make_server, authority):
    plain = make_server(Server, lambda made: made.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with staged(tls=authority.client(), secrets=lambda _owner, _name: SECRET) as stage:
        stage.grant(with_secret(plain))
        assert stage.refused(GET)[0] in {Reason.UPSTREAM_TLS, Reason.UNREACHABLE}


def test_a_host_that_differs_gets_no_secret(api, authority):
    with staged(tls=authority.client(), secrets=lambda _owner, _name: SECRET) as stage:
        stage.grant(with_secret(api))
        assert stage.refused(GET.replace("Host: api.example", "Host: evil.example"))[0] is Reason.HOST_DIFFERS
        assert stage.refused(GET.replace("api.example", "evil.example"))[0] is Reason.NOT_ALLOWED
    assert api.accepted == 0
