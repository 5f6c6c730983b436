"""Bundles on top of each other: what the installation says to everybody, and what a tenant adds for itself.

All matching rules of all layers count and the strictest wins, so a lower layer cannot loosen what a higher one denies
or asks. It can allow what the shared bundle's `default` would ask, because a default is what holds where nobody spoke;
where that default denies, only what a shared rule allows or asks gets through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Effect
from codesdk.policy.bundle import Bundle, load_bundle
from codesdk.policy.faults import PolicyInvalid

TENANT = "tenant"


def layered(shared: Bundle, tenant: Bundle) -> Bundle:
    """One bundle of both; a bundle that could not be read, or a shared one without rules, denies everything."""
    if shared.broken or not shared.rules:
        return shared
    if tenant.broken:
        return tenant
    closed = shared.default in (None, Effect.DENY)
    own = [rule for rule in tenant.rules if not (closed and rule.effect is Effect.ALLOW)]
    defaults = [bundle.default or Effect.DENY for bundle in (shared, tenant) if bundle is shared or bundle.default]
    return replace(
        shared,
        hash=content_hash([shared.hash, tenant.hash]),
        layers=(shared.hash, tenant.hash),
        closed=closed,
        rules=(*shared.rules, *(replace(rule, layer=TENANT) for rule in own)),
        default=max(defaults, key=lambda effect: effect.strictness),
        findings=(*shared.findings, *tenant.findings),
    )


def load_tenant_layer(directory: Path, known_tools: Collection[str]) -> Bundle:
    """A tenant's own bundle.

    Raises:
        PolicyInvalid: with the place; also where it switches tools on, which is the operator's to do.
    """
    bundle = load_bundle(directory, known_tools)
    if bundle.enabled:
        tool = min(bundle.enabled)
        raise PolicyInvalid(str(directory), 1, 1, f"A tenant's bundle cannot enable `{tool}`; only the shared one can.")
    return bundle
