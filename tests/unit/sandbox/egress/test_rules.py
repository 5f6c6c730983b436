from __future__ import annotations

import pytest
from pydantic import ValidationError

from codesdk.sandbox.egress.connection_attempt import Reason
from codesdk.sandbox.egress.exec_allowance import ATTEMPTS_PER_CONNECTION, ExecAllowance
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRule, EgressRules, Protocol
from egress_stage import rules


def allowed(host: str, port: int = 443, protocol: Protocol = Protocol.TLS, *, by: str) -> bool:
    return rules({"host": by}).find(host, port, protocol) is not None


def test_without_rules_nothing_is_allowed():
    assert not DENY_ALL
    assert DENY_ALL.find("packages.example", 443, Protocol.TLS) is None


def test_a_rule_allows_its_host_on_its_port_in_its_protocol():
    assert allowed("packages.example", by="packages.example")
    assert not allowed("packages.example", 80, by="packages.example")
    assert not allowed("packages.example", 443, Protocol.HTTP, by="packages.example")
    assert not allowed("files.packages.example", by="packages.example")
    assert not allowed("notpackages.example", by="packages.example")


def test_a_wildcard_allows_every_depth_but_not_the_name_itself():
    assert allowed("a.example.org", by="*.example.org")
    assert allowed("a.b.example.org", by="*.example.org")
    assert not allowed("example.org", by="*.example.org")
    assert not allowed("badexample.org", by="*.example.org")
    assert not allowed("example.org.evil.net", by="*.example.org")


@pytest.mark.parametrize(
    "host", ["*", "*.org", "**.example.org", "a.*.org", "*example.org", "*.1.2.3.4", "", "http://a.b", "a.b:80"]
)
def test_a_host_that_says_too_much_is_no_rule(host):
    with pytest.raises(ValidationError):
        EgressRule(host=host)


def test_hosts_are_kept_in_their_one_spelling():
    assert EgressRule(host="*.BÜCHER.Example.").host == "*.xn--bcher-kva.example"
    assert EgressRule(host="[2001:DB8::0:1]").host == "2001:db8::1"


def test_an_address_is_allowed_only_where_it_is_listed_as_one():
    assert allowed("93.184.216.34", by="93.184.216.34")
    assert not allowed("93.184.216.34", by="*.example.org")


def test_the_closest_rule_is_the_one_that_counts():
    found = rules(
        {"host": "*.example.org", "allow_ech": True}, {"host": "*.b.example.org"}, {"host": "a.b.example.org"}
    )
    assert found.find("a.b.example.org", 443, Protocol.TLS) == found.rules[2]
    assert found.find("c.b.example.org", 443, Protocol.TLS) == found.rules[1]
    assert found.find("c.example.org", 443, Protocol.TLS) == found.rules[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "a.example", "protocol": "tls", "upstream": "https"},
        {"host": "a.example", "protocol": "http", "allow_ech": True},
        {"host": "a.example", "protocol": "http", "inject": [{"header": "X-Key", "secret": "s"}]},
        {"host": "*.a.example", "protocol": "http", "upstream": "https", "inject": [{"header": "X", "secret": "s"}]},
        {"host": "a.example", "protocol": "http", "upstream": "https", "inject": [{"header": "Host", "secret": "s"}]},
        {"host": "a.example", "protocol": "http", "upstream": "https", "inject": [{"header": "X\r\nY", "secret": "s"}]},
        {"host": "a.example", "protocol": "http", "upstream": "https", "inject": [{"header": "X", "secret": "s", "prefix": "a\n"}]},
        {"host": "a.example", "ports": [0]},
        {"host": "a.example", "ports": ["443x"]},
        {"host": "a.example", "unknown": 1},
    ],
)  # fmt: skip
def test_a_rule_that_contradicts_itself_is_refused(fields):
    with pytest.raises(ValidationError):
        EgressRule.model_validate(fields)


def test_two_rules_for_one_place_are_refused():
    with pytest.raises(ValidationError, match="two rules"):
        rules({"host": "a.example", "allow_ech": True}, {"host": "A.example."})


@pytest.mark.parametrize(
    "document", [[], "packages.example", {"rules": [{"hots": "a.example"}]}, {"rules": [{"host": "*"}]}, {"rules": {}}]
)
def test_malformed_rules_are_refused(document):
    with pytest.raises(ValidationError):
        EgressRules.model_validate(document)


def test_rules_survive_the_container_label():
    made = rules({"host": "*.Example.ORG"}, {"host": "b.example", "protocol": "http", "ports": [8080]})
    assert EgressRules.model_validate_json(made.model_dump_json()) == made


# -- leases -----------------------------------------------------------------------------------------------------------


def lease(within: EgressRules, asked: EgressRules) -> ExecAllowance:
    return ExecAllowance("sbx_1", ("call_1", 1), within, asked)


def test_an_exec_reaches_only_what_the_profile_allows_too():
    found = lease(rules({"host": "*.example.org"}), rules({"host": "a.example.org"}, {"host": "b.example.net"}))
    assert found.find("a.example.org", 443, Protocol.TLS) is not None
    assert found.find("b.example.net", 443, Protocol.TLS) is None
    assert found.find("c.example.org", 443, Protocol.TLS) is None


@pytest.mark.parametrize(
    "more",
    [
        {"allow_ech": True},
        {"allow_missing_sni": True},
        {"protocol": "http", "upstream": "https"},
        {"protocol": "http", "upstream": "https", "upstream_port": 444},
        {"protocol": "http", "upstream": "https", "inject": [{"header": "X", "secret": "other"}]},
    ],
)
def test_an_exec_cannot_loosen_a_rule_of_the_profile(more):
    protocol = Protocol(more.get("protocol", "tls"))
    outer = {"host": "a.example", "protocol": protocol, "ports": [443]}
    assert lease(rules(outer), rules({**outer, **more})).find("a.example", 443, protocol) is None
    assert lease(rules(outer), rules(outer)).find("a.example", 443, protocol) is not None


def test_the_tighter_limit_counts():
    found = lease(rules({"host": "a.example"}, bytes_up=10, at_once=1), rules({"host": "a.example"}, bytes_up=20))
    assert found.send(10)
    assert not found.send(1)
    assert found.open() is None
    assert found.open() is Reason.TOO_MANY_AT_ONCE


def test_connections_in_all_are_bounded_and_attempts_too():
    found = lease(rules({"host": "a.example"}, connections=2), rules({"host": "a.example"}))
    for _ in range(2):
        assert found.open() is None
        found.give_back()
    assert found.open() is Reason.TOO_MANY
    assert [found.attempt() for _ in range(2 * ATTEMPTS_PER_CONNECTION)] == list(
        range(1, 2 * ATTEMPTS_PER_CONNECTION + 1)
    )
    assert found.attempt() is None
    assert found.unread == 1


def test_a_lease_that_has_ended_gives_nothing():
    found = lease(rules({"host": "a.example"}), rules({"host": "a.example"}))
    found.ended = True
    assert found.open() is Reason.EXEC_ENDED
    assert found.attempt() is None
