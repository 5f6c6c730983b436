"""Measures a decision and its peers in one run: Cedar (cedarpy) and OPA (regopy) on 10, 100 and 1,000 equivalent rules.

Each rule allows writes beneath one folder to one role; a tenth of the rules deny a file in it. The call that is decided
matches the last of them. Cedar gets its policies and entities parsed, and OPA's policy is built once, which are their
fastest forms. Rounds alternate, so that other load on the machine affects all alike. Neither reads shell lines, so
those have no peer.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cedarpy

import opa
from codesdk.domain.decisions import Classification, Effect
from codesdk.policy import Bundle, ExampleTool, load_bundle
from codesdk.policy.evaluation.query import PolicyQuery, QueryPrincipal, QuerySession, evaluate

SIZES = (10, 100, 1000)
ROUNDS = 60
PER_ROUND = 20
SLOW_US = 2000.0
"""A call that takes longer is made once in a round, and in every sixth round only."""
SLOW_EVERY = 6
PEERS = ("cedar",) if opa.ABSENT else ("cedar", "opa")
PLAIN = (
    *(f"{whose}_us_{size}" for size in SIZES for whose in ("decide", *PEERS)),
    "decide_shell_us",
    "load_1000_ms",
    "decide_1000_per_10",
    "decide_per_cedar_10",
    "decide_per_cedar_1000",
)
"""The report's keys."""
TOOLS = {
    "workspace.write": ExampleTool(name="workspace.write", classification=Classification.WRITE),
    "workspace.exec": ExampleTool(name="workspace.exec", classification=Classification.DANGEROUS),
}
LINE = (
    "cd services/api && git log --oneline -20 -- src/handlers src/models | head -5 && "
    "rg --line-number 'def handle_[a-z]+' src/handlers | sort -u | head -40 && sed -n '1,80p' src/handlers/users.py && ls -la"
)
"""About 200 characters, every command of it allowed."""


def measure() -> dict[str, float]:
    """Return microseconds (p50) by the report's keys, and the milliseconds to load 1,000 rules."""
    report: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        for size in SIZES:
            bundle, loaded_ms = _bundle(Path(place) / str(size), size)
            ours, theirs = _call(bundle, size), _cedar_call(size)
            assert ours() is Effect.ALLOW
            assert theirs() is True
            rego = [] if opa.ABSENT else [opa.opa_call(size)]
            assert all(call() is True for call in rego)
            for whose, took in zip(("decide", *PEERS), _alternate(ours, theirs, *rego), strict=True):
                report[f"{whose}_us_{size}"] = took
            report["load_1000_ms"] = loaded_ms
        shell = _shell(Path(place) / "shell")
        assert shell() is Effect.ALLOW
        report["decide_shell_us"] = _alternate(shell)[0]
    report["decide_1000_per_10"] = round(report["decide_us_1000"] / report["decide_us_10"], 2)
    report["decide_per_cedar_1000"] = round(report["decide_us_1000"] / report["cedar_us_1000"], 2)
    report["decide_per_cedar_10"] = round(report["decide_us_10"] / report["cedar_us_10"], 2)
    return report


def _alternate(*calls: Callable[[], object]) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    slow = [_once(call, 1) > SLOW_US for call in calls]
    for at in range(ROUNDS):
        for number, call in enumerate(calls):
            if not slow[number]:
                times[number].append(_once(call, PER_ROUND))
            elif at % SLOW_EVERY == 0:
                times[number].append(_once(call, 1))
    return [round(statistics.median(values), 1) for values in times]


def _once(call: Callable[[], object], times: int) -> float:
    """Microseconds of one of `times` calls."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e6


def _bundle(directory: Path, size: int) -> tuple[Bundle, float]:
    rules = []
    for number in range(size):
        test = f"{{beneath: area{number}}}" if number % 10 else f"{{eq: area{number}/secret}}"
        effect = "allow" if number % 10 else "deny"
        rules.append(
            f"- {{id: r{number}, effect: {effect}, tool: workspace.write, roles: [team{number}], args: {{/path: {test}}}}}"
        )
    directory.mkdir()
    (directory / "policy.yaml").write_text("version: 1\nrules:\n" + "\n".join(rules) + "\n")
    start = time.perf_counter()
    bundle = load_bundle(directory, list(TOOLS))
    return bundle, round((time.perf_counter() - start) * 1000, 1)


def _call(bundle: Bundle, size: int) -> Callable[[], Effect]:
    trial = PolicyQuery(
        tool="workspace.write",
        input={"path": f"area{size - 1}/a.py", "content": "x"},
        principal=QueryPrincipal(roles=(f"team{size - 1}",)),
        session=QuerySession(),
    )
    return lambda: evaluate(trial, TOOLS, bundle).effect


def _cedar_call(size: int) -> Callable[[], bool]:
    policies = []
    for number in range(size):
        head, test = ("permit", f'like "area{number}/*"') if number % 10 else ("forbid", f'== "area{number}/secret"')
        policies.append(
            f'{head}(principal in Role::"team{number}", action == Action::"workspace.write", resource) '
            f"when {{ context.path {test} }};"
        )
    entities = [
        {"uid": {"type": "User", "id": "a"}, "attrs": {}, "parents": [{"type": "Role", "id": f"team{size - 1}"}]},
        {"uid": {"type": "Role", "id": f"team{size - 1}"}, "attrs": {}, "parents": []},
    ]
    parsed = cedarpy.PolicySet.from_str("\n".join(policies))
    graph = cedarpy.Entities.from_json_str(json.dumps(entities))
    request = {
        "principal": 'User::"a"',
        "action": 'Action::"workspace.write"',
        "resource": 'Workspace::"w"',
        "context": {"path": f"area{size - 1}/a.py"},
    }
    return lambda: cedarpy.is_authorized(request, parsed, graph).allowed


def _shell(directory: Path) -> Callable[[], Effect]:
    directory.mkdir()
    (directory / "policy.yaml").write_text(
        "version: 1\nrules:\n- id: look\n  effect: allow\n  tool: workspace.exec\n"
        "  command: {any_of: [[[cd, ls, head, sort, rg], ...], [git, [log, status], ...], [sed, -n, ...]]}\n"
        "- id: never\n  effect: deny\n  tool: workspace.exec\n  command: {any_of: [[[rm, sudo, dd], ...], [git, push, ...]]}\n"
    )
    bundle = load_bundle(directory, list(TOOLS))
    trial = PolicyQuery(tool="workspace.exec", input={"command": LINE})
    return lambda: evaluate(trial, TOOLS, bundle).effect


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=2)
    print()
