"""Intersects egress rules with hosts or other rules. The result never allows more than its inputs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from codesdk.domain.network import hostnames
from codesdk.sandbox.egress.rules import EgressRule, EgressRules, Protocol

_LIMIT_FIELDS = ("at_once", "connections", "bytes_up", "bytes_down", "idle_s")


def restrict_to_hosts(rules: EgressRules, patterns: Iterable[str]) -> EgressRules:
    """The rules, restricted to these host patterns."""
    wanted = tuple(patterns)
    found = (
        rule.model_copy(update={"host": host})
        for rule in _most_specific_first(rules)
        for pattern in wanted
        if (host := hostnames.intersect(rule.host, pattern)) is not None
    )
    return rules.model_copy(update={"rules": _first_rule_per_port(found)})


def intersect(one: EgressRules, other: EgressRules) -> EgressRules:
    """The rules that both allow, with the lower of each limit."""
    found: list[EgressRule] = []
    conflicting: list[EgressRule] = []
    for left in _most_specific_first(one):
        for right in _most_specific_first(other):
            common = _intersect_rule(left, right)
            if common is not None:
                found.append(common)
                if (left.upstream, left.upstream_port) != (right.upstream, right.upstream_port):
                    conflicting.append(common)
    # If the two have different upstreams, neither allows the other's, and a wider rule must not apply instead.
    kept = (rule for rule in found if not any(_overlap(rule, place) for place in conflicting))
    return EgressRules(rules=_first_rule_per_port(kept), **lower_limits(one, other))


def lower_limits(one: EgressRules, other: EgressRules) -> dict[str, Any]:
    """The lower of each limit."""
    return {name: min(getattr(one, name), getattr(other, name)) for name in _LIMIT_FIELDS}


def _intersect_rule(left: EgressRule, right: EgressRule) -> EgressRule | None:
    host = hostnames.intersect(left.host, right.host)
    ports = sorted(set(left.reached_ports) & set(right.reached_ports))
    if host is None or not ports or left.protocol is not right.protocol:
        return None
    return left.model_copy(
        update={
            "host": host,
            "ports": tuple(ports),
            # Sorted, so that the order of the arguments makes no difference.
            "inject": tuple(sorted((item for item in left.inject if item in right.inject), key=repr)),
            "allow_missing_sni": left.allow_missing_sni and right.allow_missing_sni,
            "allow_ech": left.allow_ech and right.allow_ech,
        }
    )


def _overlap(one: EgressRule, other: EgressRule) -> bool:
    return (
        one.protocol is other.protocol
        and hostnames.intersect(one.host, other.host) is not None
        and bool(set(one.reached_ports) & set(other.reached_ports))
    )


def _most_specific_first(rules: EgressRules) -> list[EgressRule]:
    """Sorted in the order of preference of `EgressRules.find`."""
    return sorted(rules.rules, key=lambda rule: (rule.host.startswith("*."), -len(rule.host)))


def _first_rule_per_port(rules: Iterable[EgressRule]) -> tuple[EgressRule, ...]:
    """Keep the first, most specific rule for each host and port."""
    return tuple(sorted(_without_duplicates(rules), key=lambda rule: (rule.host, rule.protocol, rule.ports)))


def _without_duplicates(rules: Iterable[EgressRule]) -> Iterator[EgressRule]:
    taken: set[tuple[str, Protocol, int]] = set()
    for rule in rules:
        places = {(rule.host, rule.protocol, port) for port in rule.reached_ports}
        left = sorted(port for _, _, port in places - taken)
        taken |= places
        if left:
            yield rule.model_copy(update={"ports": tuple(left)})
