"""Merges bundle layers: the shared one, a tenant's and a session's.

All matching rules of all layers apply and the strictest effect wins, so a lower layer can't loosen what a higher one asks
or denies. A tenant's rule can allow what the shared `default` asks, because a default only applies if no rule matches. If
the shared default denies, only calls that a shared rule allows or asks can run. Session rules can only ask or deny, because
whoever opens a session need not be a policy author.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle import Bundle, make_bundle
from codesdk.policy.bundles.bundle_files import BundleTexts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.matching.compiled_rules import CompiledRule

TENANT = "tenant"
SESSION = "session"
MAX_SESSION_RULES = 200
MAX_SESSION_CHARACTERS = 64 * 1024
"""Length of a session's rules. Each process parses them again, so they must stay small."""
SESSION_FILE = "session.yaml"
_LOOSENING = ("auto_ok", "grant")
"""Keys that could make an ask milder than the default that it replaces."""


@runtime_checkable
class TenantTools(Protocol):
    """Known tools that differ by tenant: those of the shared layer, and views for each tenant's."""

    def of_tenant(self, tenant: str) -> Collection[str]:
        """Return the tools that the tenant's rules can name: not those of other tenants, which are confidential."""
        ...


def tools_of_tenant(known_tools: Collection[str], tenant: str) -> Collection[str]:
    """Return the tools that the tenant's rules can name; the same for all tenants if `known_tools` makes no difference."""
    return known_tools.of_tenant(tenant) if isinstance(known_tools, TenantTools) else known_tools


def merge_layers(upper: Bundle, lower: Bundle, layer: str = TENANT) -> Bundle:
    """Merge two layers. If one is unreadable, or the upper one has no rules, the result denies everything."""
    if upper.broken or not upper.rules:
        return upper
    if lower.broken:
        return lower
    closes = upper.default in (None, Effect.DENY)
    own = [rule for rule in lower.rules if not (closes and rule.effect is Effect.ALLOW)]
    defaults = [bundle.default or Effect.DENY for bundle in (upper, lower) if bundle is upper or bundle.default]
    return replace(
        upper,
        hash=content_hash([upper.hash, lower.hash]),
        layers=(*(upper.layers or (upper.hash,)), lower.hash),
        closed=upper.closed | {layer} if closes else upper.closed,
        rules=(*upper.rules, *(replace(rule, layer=layer) for rule in own)),
        default=max(defaults, key=lambda effect: effect.strictness),
    )


def make_tenant_layer(sources: BundleTexts, known_tools: Collection[str] | None, directory: Path) -> Bundle:
    """Compile a tenant's bundle.

    Raises:
        PolicyInvalid: with the position; also if it enables tools, which only the operator may do.
    """
    return make_bundle(sources, known_tools, directory, may_enable=False)


def make_session_layer(text: str, known_tools: Collection[str] | None) -> Bundle:
    """Compile the rules that a session is opened with, from the text of a policy file.

    Raises:
        PolicyInvalid: as `session_layer_from_texts`.
    """
    return session_layer_from_texts({SESSION_FILE: text}, known_tools)


def session_layer_from_texts(sources: BundleTexts, known_tools: Collection[str] | None) -> Bundle:
    """Compile session rules from stored texts, which may be those of an equivalent bundle with the same hash.

    Raises:
        PolicyInvalid: with line and column; also if a rule loosens the policy.
    """
    characters = sum(map(len, sources.values()))
    if characters > MAX_SESSION_CHARACTERS:
        said = f"A session's rules have at most {MAX_SESSION_CHARACTERS} characters; these have {characters}."
        raise PolicyInvalid(SESSION_FILE, 1, 1, said)
    bundle = make_bundle(sources, known_tools, Path())
    problems = [problem for rule in bundle.rules for problem in _loosening(rule)]
    if len(bundle.rules) > MAX_SESSION_RULES:
        said = f"A session has at most {MAX_SESSION_RULES} rules of its own; these are {len(bundle.rules)}."
        problems.append(PolicyInvalid(SESSION_FILE, 1, 1, said))
    if bundle.enabled:
        said = f"A session cannot enable `{min(bundle.enabled)}`."
        problems.append(PolicyInvalid(SESSION_FILE, 1, 1, said))
    if problems:
        raise PolicyInvalid.of_all(problems)
    return bundle


def _loosening(rule: CompiledRule) -> Iterator[PolicyInvalid]:
    if rule.effect is Effect.ALLOW:
        said = f"The rule `{rule.id}` allows; a session's own rules can only ask or deny."
        yield PolicyInvalid(SESSION_FILE, rule.line, 1, said)
    for key in _LOOSENING:
        if key in rule.rule.model_fields_set:
            said = f"The rule `{rule.id}` has `{key}`, which loosens; a session's own rules can only tighten."
            yield PolicyInvalid(SESSION_FILE, rule.line, 1, said)
