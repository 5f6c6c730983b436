"""Egress by name, through the system's resolver and a name server whose answers the tests decide."""

from __future__ import annotations

import pytest

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason
from named_network import LOOPBACK, METADATA, PRIVATE, PUBLIC, named_network

PLAIN = [{"host": "a.example", "protocol": "http"}]
TLS = [{"host": "a.example"}]
FORBIDDEN = [
    METADATA, LOOPBACK, PRIVATE, "192.168.1.1", "100.100.100.200", "0.0.0.0", "::1", "fd00::1", "fe80::1",
    "::ffff:10.1.2.3", "64:ff9b::a01:203",
]  # fmt: skip


@pytest.fixture(scope="module")
def network(bubblewrap_here):
    with named_network(bubblewrap_here.program) as made:
        yield made


def reasons(found) -> list[Reason]:
    return [Reason(end["reason"]) for end in found["ends"]]


def test_an_allowed_name_is_looked_up_once_and_its_address_connected_to(network):
    found = network.play({"a.example": [[PUBLIC]]}, PLAIN, ["get", "a.example", "/"])
    assert found["answers"][0].endswith("ok")
    assert (found["ends"][0]["address"], found["reached"]) == (PUBLIC, {PUBLIC: 1})
    assert found["asked"] == ["a.example"]


def test_a_name_that_is_not_allowed_is_never_looked_up(network):
    found = network.play({"b.example": [[PUBLIC]]}, PLAIN, ["get", "b.example", "/"])
    assert reasons(found) == [Reason.NOT_ALLOWED]
    assert (found["asked"], found["reached"]) == ([], {})


def test_an_unknown_name_is_not_looked_up_in_search_domains(network):
    names = {"a.example.corp.internal": [[PUBLIC]]}
    found = network.play(names, PLAIN, ["get", "a.example", "/"])
    assert reasons(found) == [Reason.NO_SUCH_NAME]
    assert found["asked"] == ["a.example"]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_name_that_turns_from_a_public_address_to_a_forbidden_one_is_refused(network, address):
    names = {"a.example": [[PUBLIC], [address]]}
    found = network.play(names, PLAIN, ["get", "a.example", "/"], ["get", "a.example", "/"])
    assert reasons(found) == [Reason.DONE, Reason.ADDRESS_REFUSED]
    assert "HTTP/1.1 403" in found["answers"][1]
    assert found["reached"] == {PUBLIC: 1}


@pytest.mark.parametrize("answer", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [PUBLIC, "::ffff:127.0.0.1"]])
def test_one_forbidden_address_among_public_ones_refuses_the_name(network, answer):
    found = network.play({"a.example": [answer]}, PLAIN, ["get", "a.example", "/"])
    assert (reasons(found), found["reached"]) == ([Reason.ADDRESS_REFUSED], {})


def test_a_name_that_stands_for_an_internal_one_is_refused(network):
    names = {"a.example": [["db.corp.internal"]], "db.corp.internal": [[PRIVATE]]}
    found = network.play(names, PLAIN, ["get", "a.example", "/"])
    assert (reasons(found), found["reached"]) == ([Reason.ADDRESS_REFUSED], {})


def test_the_address_that_was_checked_is_the_one_connected_to(network):
    """The next answer would be another address: a second look-up between check and connection would use it."""
    names = {"a.example": [[PUBLIC], [METADATA], [METADATA]]}
    found = network.play(names, PLAIN, ["get", "a.example", "/"])
    assert (reasons(found), found["asked"], found["reached"]) == ([Reason.DONE], ["a.example"], {PUBLIC: 1})


def test_a_tunnel_to_a_name_that_turned_is_refused(network):
    names = {"a.example": [[METADATA]]}
    found = network.play(names, TLS, ["connect", "a.example"])
    assert reasons(found) == [Reason.ADDRESS_REFUSED]
    assert "HTTP/1.1 403" in found["answers"][0]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("evil.example", Reason.NOT_ALLOWED),
        (METADATA, Reason.NOT_ALLOWED),
        ("inside.example", Reason.ADDRESS_REFUSED),
    ],
)
def test_a_redirect_is_followed_only_where_a_rule_and_its_address_allow(network, host, reason):
    names = {"a.example": [[PUBLIC]], "evil.example": [[PUBLIC]], "inside.example": [[PRIVATE]]}
    allowed = [*PLAIN, {"host": "inside.example", "protocol": "http"}]
    steps = (["get", "a.example", "/"], ["get", host, "/secret"])
    found = network.play(names, allowed, *steps, redirect=f"http://{host}/secret")
    assert f"Location: http://{host}/secret" in found["answers"][0]
    assert reasons(found) == [Reason.DONE, reason]
    assert found["reached"] == {PUBLIC: 1}
    assert "evil.example" not in found["asked"]


def test_a_tunnel_whose_server_name_differs_is_refused_before_a_byte_passes(network):
    names = {"a.example": [[PUBLIC]], "evil.example": [[PUBLIC]]}
    found = network.play(names, TLS, ["tunnel", "a.example", "evil.example", ""])
    assert (reasons(found), found["ends"][0]["bytes_up"]) == ([Reason.SNI_DIFFERS], 0)
    assert (found["inside"], found["asked"]) == ([], ["a.example"])


def test_a_host_asked_for_inside_a_tunnel_is_not_seen(network):
    """The limit that the documents state: a server that answers for other names can be asked for them."""
    names = {"a.example": [[PUBLIC]], "evil.example": [[PUBLIC]]}
    found = network.play(names, TLS, ["tunnel", "a.example", "a.example", "evil.example"])
    assert [end["phase"] for end in found["ends"]] == [AttemptPhase.CLOSED]
    assert found["ends"][0]["host"] == "a.example"
    assert "Host: evil.example" in found["inside"][0]
    assert found["asked"] == ["a.example"]


def test_a_name_for_this_machines_own_public_address_is_refused_by_a_worker(network):
    found = network.play({"a.example": [[PUBLIC]]}, PLAIN, ["get", "a.example", "/"], policy="worker")
    assert (reasons(found), found["reached"]) == ([Reason.ADDRESS_REFUSED], {})
    assert "an address of this machine" in found["ends"][0]["detail"]
