"""A tenant's own rules on top of the shared ones: they tighten, and never loosen what a shared rule says."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect
from codesdk.policy import Call, PolicyInvalid, decide, load_bundle
from codesdk.policy.layers import layered, load_tenant_layer

from .conftest import TOOLS, WRITE, subject

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY
EFFECTS = st.sampled_from([None, *Effect])


def bundle(directory, text):
    directory.mkdir(exist_ok=True)
    (directory / "policy.yaml").write_text(f"version: 1\n{text}")
    return load_bundle(directory, TOOLS)


def rules_of(default, effect):
    lines = f"default: {default}\n" if default else ""
    filler = "{id: other, effect: deny, tool: patch.apply}"
    return lines + f"rules: [{filler}{f', {{id: a, effect: {effect}, tool: workspace.write}}' if effect else ''}]\n"


def verdict(made):
    return decide(Call(name="workspace.write", input={"path": "a", "content": ""}), WRITE, subject(), made)


@given(EFFECTS, EFFECTS, EFFECTS, EFFECTS)
@settings(max_examples=256, deadline=None)
def test_a_tenant_can_allow_only_what_the_shared_default_asks(
    tmp_path_factory, shared_default, shared, own_default, own
):
    root = tmp_path_factory.mktemp("layers")
    base = bundle(root / "shared", rules_of(shared_default, shared))
    whole = layered(base, bundle(root / "tenant", rules_of(own_default, own)))
    alone, together = verdict(base), verdict(whole)
    if together.effect.strictness < alone.effect.strictness:
        assert (shared, shared_default, own) == (None, ASK, ALLOW)
    if own is DENY or shared is DENY:
        assert together.effect is DENY


def test_two_layers_may_use_the_same_id_and_the_decision_tells_them_apart(tmp_path):
    base = bundle(tmp_path / "shared", rules_of("ask", ALLOW))
    whole = layered(base, bundle(tmp_path / "tenant", rules_of(None, DENY)))
    assert verdict(whole).rules == ("tenant/a",)
    assert verdict(whole).rule_hashes.keys() == {"tenant/a"}
    assert whole.layers[0] == base.hash
    assert whole.hash not in whole.layers


def test_a_tenants_default_can_only_be_stricter(tmp_path):
    base = bundle(tmp_path / "shared", "default: ask\nrules: [{id: x, effect: deny, tool: patch.apply}]\n")
    assert verdict(layered(base, bundle(tmp_path / "lax", "default: allow\nrules: []\n"))).effect is ASK
    assert verdict(layered(base, bundle(tmp_path / "strict", "default: deny\nrules: []\n"))).effect is DENY


def test_a_tenant_cannot_switch_a_tool_on(tmp_path):
    (tmp_path / "policy.yaml").write_text("version: 1\nenable: [workspace.exec]\n")
    with pytest.raises(PolicyInvalid, match=r"cannot enable `workspace\.exec`"):
        load_tenant_layer(tmp_path, TOOLS)


def test_a_rule_counts_through_its_last_day_and_is_gone_the_day_after(tmp_path):
    made = bundle(
        tmp_path / "b",
        "default: ask\nrules: [{id: a, effect: allow, expires: 2027-01-31}, {id: b, effect: deny, tool: patch.apply}]\n",
    )
    assert made.on(date(2027, 1, 31)) is made
    after = made.on(date(2027, 2, 1))
    assert (verdict(made).effect, verdict(after).effect) == (ALLOW, ASK)
    assert after.hash != made.hash


def test_a_bundle_whose_rules_have_all_expired_denies_and_says_so(tmp_path):
    made = bundle(tmp_path / "b", "default: allow\nrules: [{id: a, effect: allow, expires: 2027-01-31}]\n")
    decision = verdict(made.on(date(2028, 1, 1)))
    assert decision.effect is DENY
    assert "has expired" in decision.reason


def test_a_shared_bundle_without_rules_denies_whatever_a_tenant_adds(tmp_path):
    base = bundle(tmp_path / "shared", "default: allow\nrules: []\n")
    assert verdict(layered(base, bundle(tmp_path / "tenant", rules_of("allow", ALLOW)))).effect is DENY
