"""Mutation testing: damages each rule in every simple way, and checks that a test fails for each mutant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.facts import ToolFacts
from codesdk.policy.matching.compiled_rules import CompiledRule, compile_rule
from codesdk.policy.schema.models import Rule
from codesdk.policy.testing.cases import Expectation, run_cases


@dataclass(frozen=True)
class Mutant:
    """One damaged rule."""

    rule: str
    damage: str
    killed: bool
    """Some test fails with this mutant."""


def run_mutants(
    expectations: Sequence[Expectation], tools: Mapping[str, ToolFacts], bundle: Bundle
) -> Iterator[Mutant]:
    """Run every mutant of every rule. The tests must pass on the undamaged bundle."""
    for number, rule in enumerate(bundle.rules):
        # The tests of the rule itself are the most likely to fail, and one that fails is enough.
        ordered = sorted(expectations, key=lambda expectation, rule=rule: expectation.by != rule.id)  # type: ignore[misc]
        for damage, mutated in _mutations(rule):
            rules = (*bundle.rules[:number], *([mutated] if mutated else []), *bundle.rules[number + 1 :])
            results = run_cases(ordered, tools, replace(bundle, rules=rules), every=False)
            yield Mutant(rule.id, damage, any(result.problem for result in results))


def _mutations(rule: CompiledRule) -> Iterator[tuple[str, CompiledRule | None]]:
    yield "is missing", None
    written = rule.rule.model_dump(by_alias=True, exclude_unset=True, exclude={"examples"})
    for damage, mutated in _rewrites(written):
        try:
            made = Rule.model_validate(mutated)
        except ValidationError:  # the damaged rule is not valid, for example an allow with an approval
            continue
        yield damage, replace(compile_rule(made, rule.file, rule.line, rule.commands), layer=rule.layer)


def _rewrites(written: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    asking = {"approval", "auto_ok", "floor", "any_command"}
    for effect in Effect:
        if effect != written["effect"]:
            plain = {key: value for key, value in written.items() if key not in asking}
            yield f"says {effect}", {**plain, "effect": effect}
    for key in (
        "unless",
        "when",
        "paths",
        "tool",
        "classification",
        "roles",
        "labels",
        "principal",
        "mode",
        "auto_ok",
        "floor",
        "any_command",
    ):
        # Only one tool takes commands, so removing `tool` from a rule with `command` changes nothing.
        if key in written and not (key == "tool" and "command" in written):
            yield f"has no `{key}`", {name: value for name, value in written.items() if name != key}
    for pointer in written.get("args") or {}:
        tests = {name: value for name, value in written["args"].items() if name != pointer}
        yield f"does not look at `{pointer}`", {**written, "args": tests or None}
    patterns = (written.get("command") or {}).get("any_of", ())
    for at, pattern in enumerate(patterns):
        rest = (*patterns[:at], *patterns[at + 1 :])
        if rest:
            command = {**written["command"], "any_of": rest}
            yield f"has no pattern {_pattern_text(pattern)}", {**written, "command": command}
    yield from _path_rewrites(written)


def _path_rewrites(written: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if (written.get("command") or {}).get("arguments"):
        yield "has no `arguments`", {**written, "command": {**written["command"], "arguments": None}}
    paths = written.get("paths") or {}
    for key in ("any_of", "except"):
        for pattern in paths.get(key) or ():
            rest = tuple(other for other in paths[key] if other != pattern)
            yield f"has no path `{pattern}` in `{key}`", {**written, "paths": {**paths, key: rest or None}}


def _pattern_text(pattern: Sequence[Any]) -> str:
    return "[" + ", ".join(token if isinstance(token, str) else str(token) for token in pattern) + "]"
