"""Plain HTTP through the proxy: allowed and refused requests, and headers that it sets."""

from __future__ import annotations

import time

import pytest

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason
from egress_stage import AUTHORIZATION, CREDENTIAL, KEY, OWNER, HttpServer, Server, rules, staged


def plain(web, **more):
    return rules({"host": "a.example", "protocol": "http", "ports": [web.port]}, **more)


def get(web, path="/", *fields, host="a.example"):
    lines = (f"GET http://{host}:{web.port}{path} HTTP/1.1", f"Host: {host}:{web.port}", *fields, "{auth}", "", "")
    return "\r\n".join(lines)


def test_an_allowed_request_gets_its_answer_and_is_recorded(stage, web):
    stage.grant(plain(web))
    assert (
        stage.ask(get(web, "/x")).read_all() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )
    assert web.requests == [b"GET /x HTTP/1.1\r\nHost: a.example:%d\r\nConnection: close\r\n\r\n" % web.port]
    opened, closed = (*stage.opened, stage.last())
    assert (opened.phase, opened.address, opened.host, opened.port) == (
        AttemptPhase.OPENED,
        "127.0.0.1",
        "a.example",
        web.port,
    )
    assert (closed.phase, closed.reason, closed.number) == (AttemptPhase.CLOSED, Reason.DONE, opened.number)
    assert (closed.owner, closed.call, closed.attempt) == (OWNER, *KEY)
    assert (closed.bytes_up, closed.bytes_down) == (len(web.requests[0]), 59)


def test_an_exec_without_rules_reaches_nothing(stage, web):
    stage.grant(rules())
    assert stage.refused(get(web))[0] is Reason.NOT_ALLOWED
    assert web.accepted == 0
    assert stage.resolved == []  # not even the name leaves


def test_an_exec_without_a_lease_reaches_nothing(stage, web):
    stage.grant(plain(web))
    connection = stage.tool.connect(key=("call_2", 1))
    connection.read_all()
    assert connection.reset
    assert web.accepted == 0


def test_the_profile_bounds_what_the_exec_was_given(stage, web):
    stage.grant(plain(web), within=rules({"host": "b.example", "protocol": "http", "ports": [web.port]}))
    assert stage.refused(get(web))[0] is Reason.NOT_ALLOWED


def test_an_empty_profile_bounds_it_to_nothing(stage, web):
    stage.grant(plain(web), within=rules())
    assert stage.refused(get(web))[0] is Reason.NOT_ALLOWED


def test_the_answer_to_a_refusal_says_what_is_allowed(stage, web):
    stage.grant(plain(web))
    reason, answer = stage.refused(get(web, host="b.example"))
    assert reason is Reason.NOT_ALLOWED
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\nX-CodeSDK-Egress: not_allowed\r\n")
    assert b"allowed: http://a.example:" in answer


@pytest.mark.parametrize(
    "field",
    [
        "X: y",
        "Proxy-Authorization: Basic Yng6d3Jvbmc=",
        "Proxy-Authorization: Basic !!",
        "Proxy-Authorization: Bearer x",
        f"Proxy-Authorization: {AUTHORIZATION}\r\nProxy-Authorization: {AUTHORIZATION}",
    ],
)
def test_without_the_execs_credential_nothing_is_reached(stage, web, field):
    stage.grant(plain(web))
    reason, answer = stage.refused(get(web).replace("{auth}", field))
    assert reason is Reason.CREDENTIAL
    assert answer.startswith(b"HTTP/1.1 407 ")


def test_the_credential_is_not_sent_on_and_not_recorded(stage, web):
    stage.grant(plain(web))
    stage.ask(get(web)).read_all()
    stage.last()
    assert b"Proxy-" not in web.requests[0]
    assert CREDENTIAL not in "".join(item.model_dump_json() for item in stage.attempts)


def test_paths_and_content_are_not_recorded(stage, web):
    stage.grant(plain(web))
    stage.ask(get(web, "/secret-path?token=hunter2", "X-Token: hunter3")).read_all()
    stage.last()
    text = "".join(item.model_dump_json() for item in stage.attempts)
    assert "secret-path" not in text
    assert "hunter" not in text


# -- names and addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "10.0.0.7", "192.168.1.1", "100.64.0.1", "127.0.0.2", "0.0.0.0", "224.0.0.1", "168.63.129.16",
     "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:1::"],
)  # fmt: skip
def test_a_name_with_a_refused_address_is_refused(stage, web, address):
    stage.names["a.example"] = [address]
    stage.grant(plain(web))
    assert stage.refused(get(web))[0] is Reason.ADDRESS_REFUSED
    assert web.accepted == 0


@pytest.mark.parametrize("order", [1, -1])
def test_one_refused_address_among_good_ones_refuses_all(stage, web, order):
    stage.names["a.example"] = ["127.0.0.1", "10.0.0.1"][::order]
    stage.grant(plain(web))
    assert stage.refused(get(web))[0] is Reason.ADDRESS_REFUSED
    assert web.accepted == 0


def test_a_rebinding_name_is_resolved_once_and_checked_each_time(web):
    answers = iter([["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"]])
    with staged() as stage:
        stage.egress._proxy._dialer._resolve = lambda _name: [
            __import__("ipaddress").ip_address(item) for item in next(answers)
        ]
        stage.grant(plain(web))
        assert b"200 OK" in stage.ask(get(web)).read_all()
        assert stage.last(1).reason is Reason.DONE
        assert b"403" in stage.ask(get(web)).read_all()
        assert stage.last(2).reason is Reason.ADDRESS_REFUSED
        # The third answer is still unused: each connection asked once.
        assert next(answers) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.0.1.", "[::ffff:127.0.0.1]",
             "[::ffff:7f00:1]", "[::1]", "127.0.0.1", "localhost", "169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal"],
)  # fmt: skip
def test_another_spelling_of_this_machine_is_no_way_in(stage, web, host):
    stage.grant(plain(web))
    reason, _ = stage.refused(get(web, host=host))
    assert reason in {Reason.NOT_ALLOWED, Reason.BAD_REQUEST}
    assert web.accepted == 0


def test_a_private_address_that_a_rule_lists_is_still_refused(stage, web):
    stage.grant(rules({"host": "10.0.0.1", "protocol": "http", "ports": [web.port]}))
    assert stage.refused(get(web, host="10.0.0.1"))[0] is Reason.ADDRESS_REFUSED


def test_the_policy_of_a_worker_refuses_loopback(web):
    from codesdk.domain.network.resolver import public_and_remote  # noqa: PLC0415 - what production uses, beside what tests use

    with staged(policy=public_and_remote) as stage:
        stage.grant(plain(web))
        assert stage.refused(get(web))[0] is Reason.ADDRESS_REFUSED
    assert web.accepted == 0


def test_the_proxy_cannot_be_asked_for_itself(stage):
    stage.grant(rules({"host": "a.example", "protocol": "http"}, {"host": "a.example"}))
    for text in (
        "CONNECT 127.0.0.1:3128 HTTP/1.1\r\n{auth}\r\n\r\n",
        "CONNECT localhost:3128 HTTP/1.1\r\n{auth}\r\n\r\n",
    ):
        assert stage.refused(text)[0] is Reason.NOT_ALLOWED


def test_a_name_that_does_not_exist_says_so(stage, web):
    stage.names["a.example"] = []
    stage.grant(plain(web))
    reason, answer = stage.refused(get(web))
    assert reason is Reason.NO_SUCH_NAME
    assert answer.startswith(b"HTTP/1.1 502 ")


def test_a_redirect_to_a_private_address_is_checked_when_it_is_followed(stage, make_server):
    web = make_server(
        HttpServer, b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n"
    )
    stage.grant(plain(web))
    assert b"Location: http://169.254.169.254/latest/" in stage.ask(get(web)).read_all()
    assert stage.last().reason is Reason.DONE
    followed = "GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\n{auth}\r\n\r\n"
    assert stage.refused(followed)[0] is Reason.NOT_ALLOWED


# -- smuggling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("GET {url} HTTP/1.1", "Host: b.example"), Reason.HOST_DIFFERS),
        (("GET {url} HTTP/1.1", "Host: a.example:{port}", "Host: b.example"), Reason.BAD_REQUEST),
        (("GET {url} HTTP/1.1", "Host: a.example:{port}", "host : b.example"), Reason.BAD_REQUEST),
        (("GET {url} HTTP/1.1", "X: y", " Host: b.example"), Reason.BAD_REQUEST),
        (("GET {url} HTTP/1.1",), Reason.BAD_REQUEST),
        (("GET / HTTP/1.1", "Host: a.example:{port}"), Reason.BAD_REQUEST),
        (("POST {url} HTTP/1.1", "Host: a.example:{port}", "Content-Length: 3", "Transfer-Encoding: chunked"), Reason.BAD_REQUEST),
        (("POST {url} HTTP/1.1", "Host: a.example:{port}", "Content-Length: 3", "Content-Length: 4"), Reason.BAD_REQUEST),
        (("POST {url} HTTP/1.1", "Host: a.example:{port}", "Transfer-Encoding: chunked, identity"), Reason.BAD_REQUEST),
        (("GET {url} HTTP/1.1", "Host: a.example:{port}", "Connection: Host"), Reason.BAD_REQUEST),
    ],
)  # fmt: skip
def test_a_request_that_two_readers_understand_differently_reaches_nobody(stage, web, lines, reason):
    stage.grant(plain(web))
    text = "\r\n".join((*lines, "{{auth}}", "", "")).format(url=f"http://a.example:{web.port}/", port=web.port)
    assert stage.refused(text)[0] is reason
    assert web.accepted == 0


def test_a_second_request_behind_the_first_reaches_nobody(stage, web):
    stage.grant(plain(web))
    connection = stage.ask(get(web) + f"GET http://b.example:{web.port}/ HTTP/1.1\r\nHost: b.example\r\n\r\n")
    answer = connection.read_all()
    assert stage.last().reason is Reason.BAD_REQUEST
    assert b"b.example" not in b"".join(web.requests)
    assert answer.count(b"HTTP/1.1") == 1


def test_a_request_in_the_chunks_of_another_stays_a_body(stage, make_server):
    received = []

    def answer(made):
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += made.recv(65536)
        received.append(data)
        made.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    web = make_server(Server, answer)
    stage.grant(plain(web))
    inner = b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n"
    text = f"POST http://a.example:{web.port}/ HTTP/1.1\r\nHost: a.example:{web.port}\r\nTransfer-Encoding: chunked\r\n{{auth}}\r\n\r\n"
    stage.ask(text.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)).read_all()
    assert stage.last().reason is Reason.DONE
    head, _, body = received[0].partition(b"\r\n\r\n")
    assert head.endswith(b"Transfer-Encoding: chunked\r\nConnection: close")
    assert body == b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)


def test_upgrade_is_not_passed_on_and_a_switch_is_refused(stage, make_server):
    web = make_server(HttpServer, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")
    stage.grant(plain(web))
    answer = stage.ask(get(web, "/", "Connection: Upgrade", "Upgrade: h2c")).read_all()
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"pgrade" not in web.requests[0]


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
     b"HTTP/1.1 100 Continue\r\n\r\n" * 20, b"HTTP/1.1 200 OK\r\n"],
)  # fmt: skip
def test_a_response_that_makes_no_sense_is_a_bad_gateway(stage, make_server, answer):
    web = make_server(HttpServer, answer)
    stage.grant(plain(web))
    assert stage.ask(get(web)).read_all().startswith(b"HTTP/1.1 502 ")
    assert stage.last().reason is Reason.BAD_RESPONSE


# -- bounds -----------------------------------------------------------------------------------------------------------------


def test_a_huge_head_is_refused(stage, web):
    stage.grant(plain(web))
    assert stage.refused(get(web, "/", "X: " + "y" * 40_000))[0] is Reason.BAD_REQUEST
    assert stage.refused(get(web, "/", *["X: y"] * 200))[0] is Reason.BAD_REQUEST


def test_a_head_that_drips_is_given_up(web):
    with staged(first_s=0.4) as stage:
        stage.grant(plain(web))
        connection = stage.tool.connect()
        begun = time.monotonic()
        for byte in get(web).encode():
            connection.send(bytes([byte]))
            if stage.ends:
                break
            time.sleep(0.02)
        assert stage.last().reason is Reason.SLOW
        assert time.monotonic() - begun < 30


def test_a_connection_that_says_nothing_is_given_up(web):
    with staged(first_s=0.3) as stage:
        stage.grant(plain(web))
        stage.tool.connect()
        assert stage.last().reason is Reason.SLOW


def test_an_upstream_that_says_nothing_is_given_up(stage, make_server):
    silent = make_server(Server, lambda made: made.recv(1) and made.recv(1 << 20) and made.recv(1))
    stage.grant(plain(silent, idle_s=0.3))
    assert stage.ask(get(silent)).read_all().startswith(b"HTTP/1.1 504 ")
    assert stage.last().reason is Reason.IDLE


def test_bytes_up_are_bounded(stage, web):
    stage.grant(plain(web, bytes_up=500))
    text = get(web, "/", "Content-Length: 1000").encode() + bytes(1000)
    stage.ask(text).read_all()
    end = stage.last()
    assert end.reason is Reason.BYTES_UP
    assert end.bytes_up < 500


def test_bytes_down_are_bounded(stage, make_server):
    web = make_server(HttpServer, b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000))
    stage.grant(plain(web, bytes_down=100_000))
    assert len(stage.ask(get(web)).read_all()) <= 100_000
    end = stage.last()
    assert end.reason is Reason.BYTES_DOWN
    assert end.bytes_down <= 100_000


def test_the_budget_is_the_execs_and_not_a_connections(stage, web):
    stage.grant(plain(web, bytes_down=100))
    stage.ask(get(web)).read_all()
    assert stage.last(1).reason is Reason.DONE
    stage.ask(get(web)).read_all()
    assert stage.last(2).reason is Reason.BYTES_DOWN


def test_connections_at_once_and_in_all_are_bounded(stage, make_server):
    silent = make_server(Server, lambda made: made.recv(1 << 20) and made.recv(1))
    stage.grant(plain(silent, at_once=2, connections=3))
    held = [stage.ask(get(silent)) for _ in range(2)]
    with stage._told:
        assert stage._told.wait_for(lambda: len(stage.opened) == 2, 5)
    assert stage.refused(get(silent))[0] is Reason.TOO_MANY_AT_ONCE
    for connection in held:
        connection.close()
    stage.last(3)
    third = stage.ask(get(silent))
    with stage._told:
        assert stage._told.wait_for(lambda: len(stage.opened) == 3, 5)
    third.close()
    stage.last(4)
    assert stage.refused(get(silent))[0] is Reason.TOO_MANY


def test_a_flood_of_refused_attempts_becomes_one_record(stage, web):
    stage.grant(plain(web, connections=1))
    for _ in range(10):
        stage.ask(get(web, host="b.example")).read_all()
    stage.end_exec()
    assert len(stage.ends) == 5
    assert (stage.ends[-1].reason, stage.ends[-1].count) == (Reason.TOO_MANY, 6)


def test_the_end_of_the_exec_ends_its_connections_and_records_them(stage, make_server):
    silent = make_server(Server, lambda made: made.recv(1 << 20) and made.recv(1))
    stage.grant(plain(silent))
    connection = stage.ask(get(silent))
    with stage._told:
        assert stage._told.wait_for(lambda: stage.opened, 5)
    stage.end_exec()
    assert (stage.ends[0].phase, stage.ends[0].reason) == (AttemptPhase.CLOSED, Reason.EXEC_ENDED)
    connection.read_all()
    assert connection.reset


def test_a_lost_link_ends_its_connections(stage, make_server):
    silent = make_server(Server, lambda made: made.recv(1 << 20) and made.recv(1))
    stage.grant(plain(silent))
    stage.ask(get(silent))
    with stage._told:
        assert stage._told.wait_for(lambda: stage.opened, 5)
    stage.tool.carrier.lost()
    assert stage.last().reason is Reason.BROKEN


def test_what_cannot_be_recorded_does_not_pass(web):
    def refuse(_attempt):
        raise OSError("the disk is full")

    with staged() as stage:
        stage.egress._on_attempt = refuse
        stage.grant(plain(web))
        answer = stage.ask(get(web)).read_all()
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert web.requests in ([], [b""])
        second = stage.tool.connect()
        second.read_all()
        assert second.reset


# -- processes that may not, and runners that lie ----------------------------------------------------------------------------


def test_refusals_of_the_runner_are_recorded_without_a_flood(stage):
    for _ in range(50):
        stage.tool.carrier.refused(2)
    with stage._told:
        assert stage._told.wait_for(lambda: sum(item.count for item in stage.ends) == 100, 5)
    assert {item.reason for item in stage.ends} == {Reason.NOT_THE_EXEC}
    assert len(stage.ends) <= 3


@pytest.mark.parametrize("label", [b"", b"{}", b"[]", b'["call_1"]', b'["call_1", "x", "y"]', b"[" * 900, b"\xff"])
def test_a_runner_that_lies_about_the_exec_ends_its_channel_only(stage, web, label):
    stage.grant(plain(web))
    with stage.tool.changed:
        stream = stage.tool.channel.open(label)
        stage.tool.connections[stream] = None
    stage.tool.push()
    deadline = time.monotonic() + 5
    while not stage.tool.broken and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stage.tool.broken
    from egress_stage import Tool  # noqa: PLC0415 - another link of the same worker

    stage.tool = Tool(stage.egress)
    assert b"200 OK" in stage.ask(get(web)).read_all()
