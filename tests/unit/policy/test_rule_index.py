"""The index skips only rules that can't match: every decision is the same without it."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Classification
from codesdk.policy import Call, ExampleTool, decide, explain, load_bundle

from .conftest import subject

EXEC = ExampleTool(name="workspace.exec", classification=Classification.DANGEROUS)
VALUES = st.sampled_from(
    [None, True, 1, 1.0, 0, "a", "a/b", "/workspace/a/b/c", "../x", "a/../a", ".", "", "a\0b", [], {}, ["a"], "b"]
)
ROOTS = st.sampled_from(["a", "a/b", ".", "../x", "b", "/workspace/a", "/etc"])
SCALARS = st.sampled_from([None, True, 1, 1.0, False, "a", "b", ""])
TESTS = st.one_of(
    st.fixed_dictionaries({"beneath": ROOTS | st.lists(ROOTS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"eq": SCALARS}),
    st.fixed_dictionaries({"in": st.lists(SCALARS, max_size=3)}),
    st.fixed_dictionaries({"gt": st.just(0)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"eq": SCALARS, "glob": st.just("a*")}),
)
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.lists(st.sampled_from(["approver", "auditor"]), min_size=1, max_size=2),
        "principal": st.sampled_from(["prn_1", "prn_2", "prn_*"]),
        "tenant": st.sampled_from(["ten_1", "ten_2"]),
        "args": st.dictionaries(st.sampled_from(["/p", "/q"]), TESTS, min_size=1, max_size=2),
        "when": st.sampled_from(["args.q == 1", 'has(args.p) && args.p == "a"']),
        "command": st.sampled_from([{"any_of": [["ls", "..."]]}, {"any_of": [["rm"], ["git", "push", "..."]]}]),
    },
)
RULES = st.builds(
    lambda conditions, effect, unless: {**conditions, "effect": effect, **({"unless": unless} if unless else {})},
    CONDITIONS,
    st.sampled_from(["allow", "ask", "deny"]),
    st.none() | CONDITIONS.filter(bool),
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "p": VALUES,
        "q": VALUES,
        "command": st.sampled_from(["ls", "rm", "ls; rm", "git push -f", "echo `rm`", 3]),
    },
)


@given(
    st.lists(RULES, min_size=1, max_size=8),
    CALLS,
    st.lists(st.sampled_from(["approver", "auditor", "operator"]), unique=True),
)
@settings(max_examples=400, deadline=None)
def test_a_decision_is_that_of_all_rules_tried_one_by_one(tmp_path_factory, rules, given_input, roles):
    directory = tmp_path_factory.mktemp("b")
    numbered = [{"id": f"r{number}", **rule} for number, rule in enumerate(rules)]
    text = {"version": 1, "default": "ask", "enable": ["workspace.exec"], "rules": numbered}
    (directory / "policy.yaml").write_text(json.dumps(text))
    bundle = load_bundle(directory, None)  # also rules that can't match
    call, who = Call(name=EXEC.name, input=given_input), subject(roles=tuple(roles))
    indexed, whole = decide(call, EXEC, who, bundle), explain(call, EXEC, who, bundle)
    assert indexed.model_copy(update={"trace": ()}) == whole.model_copy(update={"trace": ()})
    assert [entry for entry in whole.trace if entry.matched or entry.error] == [
        entry for entry in indexed.trace if entry.matched or entry.error
    ]
