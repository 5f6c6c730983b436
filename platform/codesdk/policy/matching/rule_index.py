"""Indexes rules by tool and by what a call must have to match, so that few rules are tried for each call.

Each rule is indexed under one dimension that it names: command words, roles, principals, tenants, argument values or
folders. For a call, only the rules under one of its keys and the unindexed ones are tried. A rule is indexed under an
argument only if any call without that key fails that test before another test can raise an error: errors make ask and
deny rules match, so the index must not skip them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from codesdk.domain.decisions import Classification
from codesdk.policy.faults import Unevaluable
from codesdk.policy.matching.argument_conditions import MISSING, ancestors, pointer_steps, value_at
from codesdk.policy.matching.compiled_rules import CompiledRule, PolicyInput

_INDEXED_TOOLS = 4096
"""Tools whose matching rules are cached."""

Key = tuple[Any, ...]


class RuleIndex:
    """Finds the rules that match a tool. Filled on demand."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self._rules = rules
        self._by_tool: dict[tuple[str, Classification], ToolRules] = {}

    def rules_for(self, name: str, classification: Classification) -> ToolRules:
        """Return the rules that match calls of the tool."""
        key = (name, classification)
        found = self._by_tool.get(key)
        if found is None:
            fitting = [rule for rule in self._rules if not rule.matcher.fits_tool(name, classification)]
            found = ToolRules(tuple(fitting))
            if len(self._by_tool) < _INDEXED_TOOLS:
                self._by_tool[key] = found
        return found


class ToolRules:
    """The rules of one tool."""

    def __init__(self, rules: tuple[CompiledRule, ...]) -> None:
        self.all = rules
        self.has_commands = any(rule.matcher.reads_commands for rule in rules)
        self.allows_any_command = any(rule.rule.any_command for rule in rules) and not any(
            rule.matcher.depends_on_input or rule.unless is not None for rule in rules
        )
        """Whether a rule covers commands that can't be read, and no rule could decide otherwise by what they hide."""
        self._unindexed: list[int] = []
        self._by_key: dict[Key, list[int]] = {}
        self._pointers: dict[str, tuple[tuple[str, ...], set[str]]] = {}
        """Arguments in the index: path and kinds of test, by pointer."""
        self._build(rules)

    def candidates(self, question: PolicyInput) -> Iterator[CompiledRule]:
        """Yield the rules that may match, each once, in bundle order."""
        shell = question.shell if self.has_commands else None
        if shell is not None and shell.opaque:
            return iter(self.all)  # any rule on commands may match what can't be seen
        found = set(self._unindexed)
        for key in self._input_keys(question):
            found.update(self._by_key.get(key, ()))
        return (self.all[number] for number in sorted(found))

    def _build(self, rules: tuple[CompiledRule, ...]) -> None:
        choices = [list(rule.matcher.keys()) for rule in rules]
        # The dimension with the fewest other rules excludes the most calls.
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
                if command.words[0].text != command.name:
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
    except Unevaluable:  # each of these rules must report the error itself
        yield ("odd", pointer)
