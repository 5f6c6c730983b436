"""Which rules can match at all: those of the tool, filed under what a call must have for them to match.

A rule is filed under one dimension: the command words, roles, principals, tenants, argument values or folders that it
names. A call brings its own keys, and only rules under one of them, or under none, are tried. A rule is filed under an
argument only where a call without that key would be told "no" before anything else of the rule could err: an error
makes an ask or a deny match, and an index must not swallow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from codesdk.domain.decisions import Classification
from codesdk.policy.faults import Unevaluable
from codesdk.policy.matching.argument_tests import MISSING, ancestors, pointer_steps, value_at
from codesdk.policy.matching.compiled_rules import CompiledRule, PolicyInput

_INDEXED_TOOLS = 4096
"""Tools whose fitting rules are remembered; a bundle meets as many as the registry has."""

Key = tuple[Any, ...]


class RuleIndex:
    """The rules that fit one tool. Filled as tools are met."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self._rules = rules
        self._by_tool: dict[tuple[str, Classification], ToolRules] = {}

    def rules_for(self, name: str, classification: Classification) -> ToolRules:
        """What can match a call of that tool."""
        key = (name, classification)
        found = self._by_tool.get(key)
        if found is None:
            fitting = [rule for rule in self._rules if not rule.matcher.fits_tool(name, classification)]
            found = ToolRules(tuple(fitting))
            if len(self._by_tool) < _INDEXED_TOOLS:
                self._by_tool[key] = found
        return found


class ToolRules:
    """One tool's rules."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self.all = rules
        self.has_commands = any(rule.matcher.patterns for rule in rules)
        self._unindexed: list[int] = []
        self._by_key: dict[Key, list[int]] = {}
        self._pointers: dict[str, tuple[tuple[str, ...], set[str]]] = {}
        """Arguments that rules are filed under: their steps, and the kinds of test."""
        self._build(rules)

    def candidates(self, question: PolicyInput) -> Iterator[CompiledRule]:
        """Rules that may match, each once, in the order of the bundle."""
        found = set(self._unindexed)
        for key in self._input_keys(question):
            found.update(self._by_key.get(key, ()))
        return (self.all[number] for number in sorted(found))

    def _build(self, rules: tuple[CompiledRule, ...]) -> None:
        choices = [list(rule.matcher.keys()) for rule in rules]
        # Of a rule's dimensions, the one under which fewest others stand sorts most of them out.
        key_sizes = Counter(key for dimensions in choices for keys in dimensions for key in keys)
        for number, dimensions in enumerate(choices):
            if not dimensions:
                self._unindexed.append(number)
                continue
            for key in min(dimensions, key=lambda keys: max(key_sizes[key] for key in keys)):
                self._by_key.setdefault(key, []).append(number)
                if key[0] in ("value", "folder"):
                    self._pointers.setdefault(key[1], (pointer_steps(key[1]), set()))[1].add(key[0])
                    self._by_key.setdefault(("odd", key[1]), []).append(number)

    def _input_keys(self, question: PolicyInput) -> Iterable[Key]:
        subject = question.subject
        yield ("principal", subject.principal_id)
        yield ("tenant", subject.tenant_id)
        for role in subject.roles:
            yield ("role", role)
        shell = question.shell if self.has_commands else None
        if shell is not None:
            for command in shell.seen:
                yield ("word", command.name)
                yield ("word", command.words[0].text)
        for pointer, (path, kinds) in self._pointers.items():
            value = value_at(question.call.input, path)
            if value is not MISSING:
                yield from _argument_keys(pointer, value, kinds)


def _argument_keys(pointer: str, value: Any, kinds: set[str]) -> Iterator[Key]:
    if "value" in kinds and isinstance(value, str | int | float | bool | None):
        yield ("value", pointer, isinstance(value, bool), value)
    if "folder" not in kinds:
        return
    try:
        for folder in ancestors(value):
            yield ("folder", pointer, folder)
    except Unevaluable:  # each of these rules has to meet the error by itself
        yield ("odd", pointer)
