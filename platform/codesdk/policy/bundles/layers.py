"""Bundles on top of each other: what the installation says to everybody, what a tenant adds, what one session adds.

All matching rules of all layers count and the strictest wins, so a lower layer cannot loosen what a higher one denies
or asks. A tenant's can allow what the shared bundle's `default` would ask, because a default is what holds where nobody
spoke; where that default denies, only what a rule above allows or asks gets through. A session's rules only ask or
deny: whoever opens it is no policy author.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle import Bundle, make_bundle
from codesdk.policy.bundles.texts import BundleTexts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.matching.compiled_rules import CompiledRule

TENANT = "tenant"
SESSION = "session"
MAX_SESSION_RULES = 200
MAX_SESSION_CHARACTERS = 64 * 1024
"""Of a session's rules: they are read again by each process, and a session is no place for a company's policy."""
SESSION_FILE = "session.yaml"
_LOOSENING = ("auto_ok", "grant")
"""What of an ask would make it milder than the default that it takes the place of."""


def merge_layers(upper: Bundle, lower: Bundle, layer: str = TENANT) -> Bundle:
    """One bundle of both; one that could not be read, or an upper one without rules, denies everything."""
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
    """A tenant's own bundle.

    Raises:
        PolicyInvalid: with the place; also where it switches tools on, which is the operator's to do.
    """
    bundle = make_bundle(sources, known_tools, directory)
    if bundle.enabled:
        tool = min(bundle.enabled)
        raise PolicyInvalid(str(directory), 1, 1, f"A tenant's bundle cannot enable `{tool}`; only the shared one can.")
    return bundle


def make_session_layer(text: str, known_tools: Collection[str]) -> Bundle:
    """The rules that one session is opened with: the text of a policy file.

    Raises:
        PolicyInvalid: as `session_layer_from_texts`.
    """
    return session_layer_from_texts({SESSION_FILE: text}, known_tools)


def session_layer_from_texts(sources: BundleTexts, known_tools: Collection[str]) -> Bundle:
    """The same from the files that are kept under its hash: a bundle that says the same may have come first.

    Raises:
        PolicyInvalid: with line and column; also where a rule would loosen something.
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
