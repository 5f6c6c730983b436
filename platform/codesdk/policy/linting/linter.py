"""Lints a bundle, including one that does not load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path

from codesdk.documents import nearest
from codesdk.domain.decisions import PREVIEWABLE, Effect
from codesdk.policy.bundles.bundle import Bundle, Finding, load_bundle
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.linting.containment import allowed_values, contains
from codesdk.policy.linting.path_patterns import unused_path_patterns
from codesdk.policy.linting.tool_schemas import ToolSchema
from codesdk.policy.linting.unmatchable_rules import unmatchable_reasons
from codesdk.policy.matching.compiled_rules import CompiledRule
from codesdk.policy.schema.models import Matcher, Rule

_MATCH_OR_INFO_FIELDS = frozenset(Matcher.model_fields) | {
    "id",
    "effect",
    "reason",
    "owner",
    "examples",
    "expires",
    "unless",
    "absent_ok",
}
"""Fields of a rule that decide when it matches, or that don't affect the run. Any other field adds an effect."""


def lint(
    directory: Path,
    known_tools: Collection[str],
    *,
    tool_schemas: Mapping[str, ToolSchema] | None = None,
    day: date | None = None,
    may_enable: bool = True,
) -> tuple[Finding, ...]:
    """Return all findings, sorted by position. A bundle that does not load has only the errors that prevent it.

    Args:
        directory: one bundle.
        known_tools: dotted names from the registry.
        tool_schemas: the tools' schemas; without them, classifications and arguments are not checked.
        day: today, to report expired rules.
        may_enable: the bundle can enable tools; a tenant's can't.
    """
    try:
        bundle = load_bundle(directory, tool_schemas or known_tools, may_enable=may_enable)
    except PolicyInvalid as error:
        problems = (
            Finding(one.file, one.line, one.column, one.described(), fatal=True) for one in (error, *error.others)
        )
        return tuple(sorted(problems, key=lambda finding: (finding.file, finding.line, finding.column)))
    found = bundle_warnings(bundle, directory, tool_schemas or {}, day)
    return tuple(sorted(found, key=lambda finding: (finding.file, finding.line, finding.column)))


def unknown_groups(bundle: Bundle, directory: Path, groups: Collection[str]) -> Iterator[Finding]:
    """Warn about groups without members. Not an error, because a group exists only while it has members."""
    for rule in bundle.rules:
        approval = rule.rule.approval
        later = approval.escalate.to if approval is not None and approval.escalate is not None else None
        for group in (approval.group if approval is not None else None, later):
            if group is None or group in groups:
                continue
            near = nearest(group, groups)
            hint = f"Did you mean `{near}`?" if near else "Add members: `codesdk groups add`."
            said = f"The rule `{rule.id}` asks the group `{group}`, which has no members. {hint}"
            yield Finding(str(directory / rule.file), rule.line, 1, said)


def bundle_warnings(
    bundle: Bundle, directory: Path, tool_schemas: Mapping[str, ToolSchema], day: date | None
) -> Iterator[Finding]:
    """Yield what an author should look at in a bundle that loads. `directory` appears in positions."""
    if not bundle.rules:
        yield Finding(str(directory), 1, 1, "The bundle has no rules, so every call is denied.")
    live = [rule for rule in bundle.rules if day is None or not rule.expired(day)]
    others = _ShadowingRules(live, tool_schemas)
    for rule in bundle.rules:
        impossible = list(unmatchable_reasons(rule, day))
        shadow = others.of(rule) if not impossible else None
        shadowed = [f"never decides: `{shadow.id}` {_verb(shadow)} all that it matches."] if shadow else []
        for message in (*_rule_findings(rule), *_previews_nothing(rule.rule, tool_schemas), *impossible, *shadowed):
            yield Finding(str(directory / rule.file), rule.line, 1, f"The rule `{rule.id}` {message}")


def _rule_findings(rule: CompiledRule) -> Iterator[str]:
    if rule.effect is not Effect.ALLOW and any(not pattern.rest for pattern in rule.matcher.patterns):
        yield "stops a command only without further arguments; end its patterns with `...`."
    if rule.effect is Effect.ALLOW and rule.rule.command is None and not _is_restricted(rule):
        yield "allows every tool; name tools or a classification."
    if rule.rule.paths is not None:
        yield from unused_path_patterns(rule.rule.paths)


def _previews_nothing(rule: Rule, tool_schemas: Mapping[str, ToolSchema]) -> Iterator[str]:
    """Report `approval.preview` if no call that the rule matches would get a dry run."""
    if rule.approval is None or not rule.approval.preview:
        return
    named = [tool_schemas.get(name) for name in rule.tool or ()]
    classes = {shape.classification for shape in named if shape is not None} if all(named) else set()
    classes = classes or set(rule.classification or ())
    if classes and not classes & PREVIEWABLE:
        yield "wants a preview, and its tools neither write files nor run commands; take `preview` off."


def _is_restricted(rule: CompiledRule) -> bool:
    return bool(
        (rule.rule.tool and "*" not in rule.rule.tool)
        or rule.rule.server
        or rule.rule.classification
        or rule.rule.args
        or rule.rule.paths
    )


def _verb(rule: CompiledRule) -> str:
    return {Effect.ALLOW: "allows", Effect.ASK: "asks about", Effect.DENY: "denies"}[rule.effect]


class _ShadowingRules:
    """Finds a rule that is at least as strict as another and matches everything it matches.

    Rules are indexed by something they name, because comparing all pairs of 10,000 rules would be too slow.
    """

    def __init__(self, rules: list[CompiledRule], tool_schemas: Mapping[str, ToolSchema]) -> None:
        self._shapes = tool_schemas
        self._order = {rule.id: number for number, rule in enumerate(rules)}
        self._by_key: dict[tuple[str, str], list[CompiledRule]] = {}
        self._unindexed: list[CompiledRule] = []
        named = [(rule, list(_dimensions(rule.rule))) for rule in rules]
        key_sizes = Counter(key for _, dimensions in named for keys in dimensions for key in keys)
        for rule, dimensions in named:
            if not dimensions:
                self._unindexed.append(rule)
                continue
            for key in min(dimensions, key=lambda keys: max(key_sizes[key] for key in keys)):
                self._by_key.setdefault(key, []).append(rule)

    def of(self, rule: CompiledRule) -> CompiledRule | None:
        """Return the first such rule. Of two equivalent rules, the earlier one shadows the later."""
        if rule.id not in self._order:
            return None
        for other in self._candidates(rule):
            if other.id == rule.id or other.effect.strictness < rule.effect.strictness:
                continue
            if self._rule_contains(other, rule) and _is_redundant(rule.rule, other.rule):
                same = other.effect is rule.effect and self._rule_contains(rule, other)
                if not same or self._order[other.id] < self._order[rule.id]:
                    return other
        return None

    def _candidates(self, rule: CompiledRule) -> Iterable[CompiledRule]:
        yield from self._unindexed
        for keys in _dimensions(rule.rule):
            for key in keys[:1]:  # a rule that contains this one has all of its keys, so one key is enough
                yield from self._by_key.get(key, ())

    def _rule_contains(self, wide: CompiledRule, narrow: CompiledRule) -> bool:
        one, other = self._by_tools(wide.rule, narrow.rule)
        if one.expires is not None and (other.expires is None or other.expires > one.expires):
            return False
        if not contains(one, other):
            return False
        return one.unless is None or (other.unless is not None and contains(other.unless, one.unless))

    def _by_tools(self, wide: Rule, narrow: Rule) -> tuple[Rule, Rule]:
        """Drop the wide rule's classification if all tools that the narrow one names have it."""
        if wide.classification is None or narrow.tool is None:
            return wide, narrow
        named = [self._shapes.get(name) for name in narrow.tool]
        if all(shape is not None and shape.classification in wide.classification for shape in named):
            return wide.model_copy(update={"classification": None}), narrow
        return wide, narrow


def _dimensions(rule: Rule) -> Iterator[list[tuple[str, str]]]:
    """Yield the exact names in a rule, by kind."""
    for kind, names in (("tool", rule.tool), ("principal", rule.principal), ("tenant", rule.tenant)):
        if names and not any(mark in name for name in names for mark in "*?["):
            yield [(kind, name) for name in names]
    if rule.roles:
        yield [("role", role) for role in rule.roles]
    for pointer, test in (rule.args or {}).items():
        values = allowed_values(test)
        if values:
            yield [(f"value {pointer}", repr(value)) for value in values]
    words = [pattern[0] for pattern in rule.command.any_of] if rule.command else []
    if words and all(isinstance(word, str | list) for word in words):
        yield [("word", word) for token in words for word in ([token] if isinstance(token, str) else token)]  # type: ignore[misc]


def _is_redundant(rule: Rule, stricter: Rule) -> bool:
    """Return whether calls that both rules match are decided and run as with the stricter rule alone."""
    if stricter.effect is Effect.DENY:
        return True
    told = rule.model_fields_set - _MATCH_OR_INFO_FIELDS
    if stricter.auto_ok and rule.effect is Effect.ASK and not rule.auto_ok:
        return False
    return all(
        getattr(rule, name) == getattr(stricter, name) or getattr(rule, name) == Rule.model_fields[name].default
        for name in told - {"auto_ok"}
    )
