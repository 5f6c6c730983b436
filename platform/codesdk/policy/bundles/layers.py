"""Merges bundle layers: the shared one, a tenant's and a session's.

All matching rules of all layers apply and the strictest effect wins, so a lower layer can't loosen what a higher one asks
or denies. A tenant's rule can allow what the shared `default` asks, because a default only applies if no rule matches. If
the shared default denies, only calls that a shared rule allows or asks can run. Session rules can only ask or deny, because
whoever opens a session need not be a policy author.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

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
        findings=(*upper.findings, *lower.findings),
    )


def make_tenant_layer(sources: BundleTexts, known_tools: Collection[str], directory: Path) -> Bundle:
    """Compile a tenant's bundle.

    Raises:
        PolicyInvalid: with the position; also if it enables tools, which only the operator may do.
    """
    bundle = make_bundle(sources, known_tools, directory)
    if bundle.enabled:
        tool = min(bundle.enabled)
        raise PolicyInvalid(str(directory), 1, 1, f"A tenant's bundle cannot enable `{tool}`; only the shared one can.")
    return bundle


def make_session_layer(text: str, known_tools: Collection[str]) -> Bundle:
    """Compile the rules that a session is opened with, from the text of a policy file.

    Raises:
        PolicyInvalid: as `session_layer_from_texts`.
    """
    return session_layer_from_texts({SESSION_FILE: text}, known_tools)


def session_layer_from_texts(sources: BundleTexts, known_tools: Collection[str]) -> Bundle:
    """Compile session rules from stored texts, which may be those of an equivalent bundle with the same hash.

    Raises:
        PolicyInvalid: with line and column; also if a rule loosens the policy.
    """
    characters = sum(map(len, sources.values()))
    if characters > MAX_SESSION_CHARACTERS:
        said = f"A session's rules have at most {MAX_SESSION_CHARACTERS} characters; these have {characters}."
        raise PolicyInvalid(SESSION_FILE, 1, 1, said)
    bundle = make_bundle(sources, known_tools, Path())
    if len(bundle.rules) > MAX_SESSION_RULES:
        said = f"A session has at most {MAX_SESSION_RULES} rules of its own; these are {len(bundle.rules)}."
        raise PolicyInvalid(SESSION_FILE, 1, 1, said)
    if bundle.enabled:
        raise PolicyInvalid(SESSION_FILE, 1, 1, f"A session cannot enable `{min(bundle.enabled)}`.")
    for rule in bundle.rules:
        _check_tightens(rule)
    return bundle


def _check_tightens(rule: CompiledRule) -> None:
    if rule.effect is Effect.ALLOW:
        said = f"The rule `{rule.id}` allows; a session's own rules can only ask or deny."
        raise PolicyInvalid(SESSION_FILE, rule.line, 1, said)
    for key in _LOOSENING:
        if key in rule.rule.model_fields_set:
            said = f"The rule `{rule.id}` has `{key}`, which loosens; a session's own rules can only tighten."
            raise PolicyInvalid(SESSION_FILE, rule.line, 1, said)
