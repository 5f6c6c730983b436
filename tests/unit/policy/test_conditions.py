"""CEL in `when`: checked at load, and an error is never an allow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.policy import Call, PolicyInvalid, Reachability, decide, may_ever_allow
from codesdk.policy.faults import Unevaluable
from codesdk.policy.schema.conditions import Condition

from .conftest import READ, WRITE, subject

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


def bundle_of(write_bundle, effect, when, **more):
    keys = "".join(f", {name}: {value}" for name, value in more.items())
    return write_bundle(f"default: ask\nrules:\n- {{id: one, effect: {effect}, when: '{when}'{keys}}}\n")


def effect(bundle, arguments, who=None):
    return decide(Call(name="workspace.write", input=arguments), WRITE, who or subject(), bundle).effect


@pytest.mark.parametrize(
    ("when", "arguments", "holds"),
    [
        ("args.amount > 100", {"amount": 101}, True),
        ("args.amount > 100", {"amount": 100}, False),
        ("args.amount > 100.0", {"amount": 100.5}, True),
        ('"x" in args && size(args.x) > 2', {"x": "abc"}, True),
        ('"x" in args && size(args.x) > 2', {}, False),
        ('principal.roles.exists(r, r == "support")', {}, True),
        ('session.labels["branch"].startsWith("scratch/")', {}, True),
        ('session.mode == "auto" && session.runtime == "mcp-client"', {}, True),
        ('tool.name == "workspace.write" && tool.classification == "write"', {}, True),
        ('args.path.matches("^src/.*[.]py$")', {"path": "src/a.py"}, True),
        ("args.on == true", {"on": True}, True),
        ("args.on == true", {"on": 1}, False),
    ],
)
def test_a_condition_reads_arguments_tool_principal_and_session(write_bundle, when, arguments, holds):
    bundle = bundle_of(write_bundle, "deny", when)
    who = subject(roles=("support",), labels={"branch": "scratch/1"})
    assert effect(bundle, arguments, who) is (DENY if holds else ASK)


@pytest.mark.parametrize("arguments", [{}, {"amount": "x"}, {"amount": None}, {"amount": 2**70}, {"amount": "\ud800"}])
def test_a_condition_that_cannot_be_evaluated_allows_nothing_and_denies(write_bundle, arguments):
    assert effect(bundle_of(write_bundle, "allow", "args.amount < 100"), arguments) is ASK
    assert effect(bundle_of(write_bundle, "deny", "args.amount > 100"), arguments) is DENY


def test_an_exception_that_cannot_be_evaluated_takes_no_deny_away_and_takes_an_allow_away(write_bundle):
    unless = "{when: args.amount < 5}"
    assert effect(bundle_of(write_bundle, "deny", "true", unless=unless), {}) is DENY
    assert effect(bundle_of(write_bundle, "allow", "true", unless=unless), {}) is ASK


def test_a_condition_that_takes_too_many_steps_ends_soon_and_counts_as_an_error(write_bundle):
    bomb = "args.l"
    for name in "abcde":
        bomb = f"args.l.map({name}, {bomb})"
    arguments = {"l": list(range(40))}
    assert effect(bundle_of(write_bundle, "allow", f"size({bomb}) > 0"), arguments) is ASK
    assert effect(bundle_of(write_bundle, "deny", f"size({bomb}) > 0"), arguments) is DENY


def test_an_expression_of_the_regular_kind_that_explodes_elsewhere_is_linear_here(write_bundle):
    bundle = bundle_of(write_bundle, "deny", 'args.p.matches("^(a+)+$")')
    assert effect(bundle, {"p": "a" * 50_000 + "b"}) is ASK


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("agrs.amount > 1", "there is no name or function `agrs.amount`"),
        ('principal.role == "x"', "there is no name or function `principal.role`"),
        ("args.amount >", "it ends too early"),
        ("args.amount", "true or false"),
        ("tool.name == 3", "no matching overload"),
        ("1 + 1", "this gives int"),
        ("true || " * 300 + "true", "at most 2000 characters"),
    ],
)
def test_a_condition_that_is_none_is_found_at_load_with_its_place(write_bundle, when, said):
    with pytest.raises(PolicyInvalid, match=r"policy\.yaml:4:\d+: ") as refused:
        write_bundle(f"rules:\n- id: one\n  when: '{when}'\n  effect: deny\n")
    assert said in str(refused.value)


def test_a_tool_whose_only_allow_has_a_condition_is_listed_as_one_that_depends(write_bundle):
    bundle = write_bundle("rules:\n- {id: one, effect: allow, when: 'args.n > 1'}\n")
    assert may_ever_allow(READ, subject(PermissionMode.AUTO), bundle) is Reachability.DEPENDS


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    )
)
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_call_a_condition_decides_or_errs_and_never_raises(arguments):
    condition = Condition('"a" in args && args.a > 3 && size(args) < 3')
    call = Call.model_construct(name="workspace.write", input=arguments)
    try:
        held = condition.holds(call, WRITE, subject())
    except Unevaluable:
        return
    assert held in (True, False)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ('args.path.matches("[")', "missing ]"),
        ('args.path.matches("a" + "(")', "missing )"),
        ('matches(args.path, r"a{2000}")', "invalid repetition size"),
        ("args.path.matches(args.pattern)", "write the pattern of `matches` out as a text"),
        ("args.list.exists(x, x.matches(x))", "write the pattern of `matches` out as a text"),
        (r'args.path.matches(r"\pL{100}")', "it is too large"),
    ],
)
def test_a_regular_expression_that_cannot_be_used_is_an_error_at_load(write_bundle, when, said):
    with pytest.raises(PolicyInvalid, match=r"policy.yaml:4:\d+: `rules.one.when`: ") as raised:
        bundle_of(write_bundle, "deny", when)
    assert said in raised.value.problem


def test_a_regular_expression_over_a_long_list_takes_bounded_time_and_denies_if_it_takes_too_much(write_bundle):
    bundle = bundle_of(write_bundle, "deny", 'args.list.exists(x, x.matches(r"(a?){500}a{500}"))')
    began = time.process_time()
    assert effect(bundle, {"list": ["b"] * 4000}) is ASK
    assert time.process_time() - began < 5  # CEL's own function took a minute
    began = time.process_time()
    assert effect(bundle, {"list": ["b" * 20_000] * 200}) is DENY
    assert time.process_time() - began < 10
    assert effect(bundle, {"list": ["b"]}) is ASK
