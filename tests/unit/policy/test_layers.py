"""A tenant's own rules on top of the shared ones: they tighten a shared rule and never loosen it."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.policy import Call, PolicyInvalid, Reachability, decide, load_bundle, may_ever_allow
from codesdk.policy.bundles.bundle_files import read_bundle_texts
from codesdk.policy.bundles.layers import SESSION, make_session_layer, make_tenant_layer, merge_layers

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


def verdict(made, mode=PermissionMode.AUTO):
    return decide(Call(name="workspace.write", input={"path": "a", "content": ""}), WRITE, subject(mode), made)


@given(EFFECTS, EFFECTS, EFFECTS, EFFECTS)
@settings(max_examples=256, deadline=None)
def test_a_tenant_can_allow_only_what_the_shared_default_asks(
    tmp_path_factory, shared_default, shared, own_default, own
):
    root = tmp_path_factory.mktemp("layers")
    base = bundle(root / "shared", rules_of(shared_default, shared))
    whole = merge_layers(base, bundle(root / "tenant", rules_of(own_default, own)))
    alone, together = verdict(base), verdict(whole)
    if together.effect.strictness < alone.effect.strictness:
        assert (shared, shared_default, own) == (None, ASK, ALLOW)
    if own is DENY or shared is DENY:
        assert together.effect is DENY


def test_two_layers_may_use_the_same_id_and_the_decision_tells_them_apart(tmp_path):
    base = bundle(tmp_path / "shared", rules_of("ask", ALLOW))
    whole = merge_layers(base, bundle(tmp_path / "tenant", rules_of(None, DENY)))
    assert verdict(whole).rules == ("tenant/a",)
    assert verdict(whole).rule_hashes.keys() == {"tenant/a"}
    assert whole.layers[0] == base.hash
    assert whole.hash not in whole.layers


def test_a_tenants_default_can_only_be_stricter(tmp_path):
    base = bundle(tmp_path / "shared", "default: ask\nrules: [{id: x, effect: deny, tool: patch.apply}]\n")
    assert verdict(merge_layers(base, bundle(tmp_path / "lax", "default: allow\nrules: []\n"))).effect is ASK
    assert verdict(merge_layers(base, bundle(tmp_path / "strict", "default: deny\nrules: []\n"))).effect is DENY


def test_a_tenant_cannot_switch_a_tool_on(tmp_path):
    (tmp_path / "policy.yaml").write_text("version: 1\nenable: [workspace.exec]\n")
    with pytest.raises(PolicyInvalid, match=r"cannot enable `workspace\.exec`"):
        make_tenant_layer(read_bundle_texts(tmp_path), TOOLS, tmp_path)


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
    assert verdict(merge_layers(base, bundle(tmp_path / "tenant", rules_of("allow", ALLOW)))).effect is DENY


@given(
    st.tuples(EFFECTS, EFFECTS),
    st.tuples(EFFECTS, EFFECTS),
    st.tuples(EFFECTS, st.sampled_from([None, ASK, DENY])),
    st.tuples(st.sampled_from(list(PermissionMode)), st.sampled_from(["", ", auto_ok: true", ", floor: true"])),
)
@settings(max_examples=300, deadline=None)
def test_a_sessions_own_rules_never_loosen_anything_in_any_mode(tmp_path_factory, shared, tenant, session, marked):
    root = tmp_path_factory.mktemp("layers")
    mode, marks = marked
    text = rules_of(*shared).replace("effect: ask", f"effect: ask{marks}")
    upper = merge_layers(bundle(root / "shared", text), bundle(root / "tenant", rules_of(*tenant)))
    own = make_session_layer(f"version: 1\n{rules_of(*session)}", TOOLS)
    before, after = verdict(upper, mode), verdict(merge_layers(upper, own, SESSION), mode)
    assert after.effect.strictness >= before.effect.strictness
    assert session[1] is not DENY or after.effect is DENY
    whole = merge_layers(upper, own, SESSION)
    listed = may_ever_allow(WRITE, subject(mode), whole)
    assert listed is not Reachability.NEVER or after.effect is DENY
    assert listed is not Reachability.ALWAYS or after.effect is ALLOW


def test_a_session_can_narrow_a_call_to_a_few_and_ask_about_the_rest(tmp_path):
    upper = bundle(tmp_path / "shared", "default: ask\nrules: [{id: w, effect: allow, classification: write}]\n")
    text = "version: 1\nrules:\n- {id: only-src, effect: deny, tool: workspace.write, unless: {args: {/path: {beneath: src}}}}\n"
    whole = merge_layers(upper, make_session_layer(text, TOOLS), SESSION)
    said = verdict(whole)
    assert (said.effect, said.rules) == (DENY, ("session/only-src",))
    assert verdict(upper).effect is ALLOW
    assert whole.layers == (upper.hash, make_session_layer(text, TOOLS).hash)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("rules:\n- {id: a, effect: allow, tool: workspace.read}\n", 3, "can only ask or deny"),
        ("rules:\n- {id: a, effect: ask, auto_ok: true, tool: workspace.read}\n", 3, "loosens"),
        ("enable: [workspace.exec]\n", 1, "cannot enable"),
        ("rules:\n- {id: a, efect: ask}\n", 3, "is not a known key"),
        ("rules: &a [*a]\n", 2, "Anchors"),
        ("# " + "x" * 70_000 + "\n", 1, "at most 65536 characters"),
        ("rules:\n" + "".join(f"- {{id: r{n}, effect: ask, tool: workspace.read}}\n" for n in range(201)), 1, "at most 200 rules"),
    ],
)  # fmt: skip
def test_rules_that_a_session_cannot_have_are_refused_with_their_line(text, line, says):
    with pytest.raises(PolicyInvalid) as caught:
        make_session_layer(f"version: 1\n{text}", TOOLS)
    assert (caught.value.line, caught.value.file) == (line, "session.yaml")
    assert says in caught.value.problem
