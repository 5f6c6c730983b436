"""What an author should look at in a bundle that loads, and in one that does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from codesdk.domain.decisions import Effect
from codesdk.policy.bundle import Bundle, Finding, load_bundle
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.rules import CompiledRule


def lint(directory: Path, known_tools: Collection[str]) -> tuple[Finding, ...]:
    """All findings, by place; a bundle that cannot be loaded gives the one that stops it."""
    try:
        bundle = load_bundle(directory, known_tools)
    except PolicyInvalid as error:
        hint = f" {error.advice()}" if error.advice() else ""
        return (Finding(error.file, error.line, error.column, error.problem + hint, fatal=True),)
    found = [*bundle.findings, *_of_bundle(bundle, directory)]
    return tuple(sorted(found, key=lambda finding: (finding.file, finding.line, finding.column)))


def _of_bundle(bundle: Bundle, directory: Path) -> Iterator[Finding]:
    if not bundle.rules:
        yield Finding(str(directory), 1, 1, "The bundle has no rules, so every call is denied.")
    certain_denies = [rule for rule in bundle.rules if rule.effect is Effect.DENY and not _conditional(rule)]
    for rule in bundle.rules:
        for message in (*_of_rule(rule), *_shadowed(rule, certain_denies)):
            yield Finding(str(directory / rule.file), rule.line, 1, f"The rule `{rule.id}` {message}")


def _of_rule(rule: CompiledRule) -> Iterator[str]:
    if rule.effect is not Effect.ALLOW and any(not pattern.rest for pattern in rule.matcher.patterns):
        yield "stops a command only without further arguments; end its patterns with `...`."
    if rule.effect is Effect.ALLOW and rule.rule.command is None and not _restricted(rule):
        yield "allows every tool; name tools or a classification."


def _shadowed(rule: CompiledRule, denies: list[CompiledRule]) -> Iterator[str]:
    """A deny without conditions on the same tools makes a laxer rule useless."""
    for deny in denies:
        same = deny.rule.tool is None or (rule.rule.tool is not None and set(rule.rule.tool) <= set(deny.rule.tool))
        classes = deny.rule.classification
        same_class = classes is None or (
            rule.rule.classification is not None and set(rule.rule.classification) <= set(classes)
        )
        if rule.effect is not Effect.DENY and same and same_class:
            yield f"never decides: `{deny.id}` denies all that it matches."


def _conditional(rule: CompiledRule) -> bool:
    written = rule.rule
    subject = written.principal or written.roles or written.labels or written.mode or written.runtime
    return bool(subject or rule.matcher.depends_on_input or written.unless)


def _restricted(rule: CompiledRule) -> bool:
    return bool((rule.rule.tool and "*" not in rule.rule.tool) or rule.rule.classification or rule.rule.args)
