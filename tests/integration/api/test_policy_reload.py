"""Policy files that must not take effect on a running service: the last valid ones stay in force, and everyone is told."""

from __future__ import annotations

import pytest

from codesdk.tenancy.principal import Reach, Role

CALL = {"tool": "workspace.write", "input": {"path": "a", "content": ""}}
TEST = "version: 1\ncases: [{name: writing, tool: workspace.write, input: {path: a, content: b}, expect: deny}]\n"
RULE = "version: 1\ndefault: ask\nrules: [{id: a, effect: allow, "
WRONG = {
    "an unknown tool": ({"policy.yaml": RULE + "tool: workspace.wirte}]\n"}, "unknown tool `workspace.wirte`"),
    "an unknown argument": (
        {"policy.yaml": RULE + "tool: workspace.write, args: {/pth: {eq: a}}}]\n"},
        "no argument `/pth`",
    ),
    "a broken regular expression": (
        {"policy.yaml": RULE + "tool: workspace.write, when: 'args.path.matches(\"[\")'}]\n"},
        "missing ]",
    ),
    "a file that is not read": ({"deny.YAML": RULE + "tool: workspace.write}]\n"}, "This file is not read"),
    "a failing test": ({"tests/t.yaml": TEST}, "The test `writing` fails"),
}


@pytest.fixture
def chief(stack):
    """A client of someone who may read everything of the installation."""
    enroll = stack.services.directory.enroll
    _, key = stack.services.writer.run(lambda unit: enroll(unit, "default", "chief", tuple(Role), reach=Reach.INSTANCE))
    with stack.http(key) as client:
        yield client


@pytest.mark.parametrize(("files", "said"), WRONG.values(), ids=WRONG)
def test_files_that_would_lose_something_leave_the_last_rules_in_force_and_it_is_said(
    stack, chief, helpers, files, said
):
    directory = stack.settings.policies_dir
    before = chief.get("/v1/policy").json()
    decided = chief.post("/v1/policy/decide", json=CALL).json()
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    told = helpers.eventually(lambda: chief.get("/v1/policy").json()["problems"].get("shared"))
    assert said in told
    assert chief.get("/v1/policy").json()["hash"] == before["hash"]
    assert chief.post("/v1/policy/decide", json=CALL).json()["effect"] == decided["effect"]
    assert said in chief.get("/v1/policy/versions", params={"layer": "shared"}).json()["problem"]

    def refused():
        kept = chief.get("/v1/audit", params={"tenant_id": "installation"}).json()["entries"]
        return [entry["details"] for entry in kept if entry["act"] == "policy.refused"]

    (entry,) = helpers.eventually(refused)
    assert (entry["hash"], said in entry["problem"]) == (before["hash"], True)
    assert "codesdk_policy_problems 1.0" in chief.get("/metrics").text


def test_a_promotion_and_a_sessions_rules_are_refused_for_the_same_reasons(stack):
    wrong = "version: 1\nrules: [{id: a, effect: deny, tool: [workspace.wirte, nothing.there]}]\n"
    with stack.http(stack.key(Role.OPERATOR)) as client:
        for answer in (
            client.post("/v1/policy/promote", json={"files": {"policy.yaml": wrong, "tests/t.yaml": TEST}}),
            client.post("/v1/policy/shadow", json={"files": {"policy.yaml": wrong}}),
            client.post("/v1/sessions", json={"policy": wrong}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (422, "POLICY_INVALID")
            assert all(name in answer.text for name in ("workspace.wirte", "nothing.there"))


def test_a_promotion_warns_of_a_group_without_members(stack):
    asks = "version: 1\nrules: [{id: a, effect: ask, tool: workspace.write, approval: {group: finance}}]\n"
    test = TEST.replace("expect: deny", "expect: ask")
    with stack.http(stack.key(Role.OPERATOR)) as client:
        made = client.post("/v1/policy/promote", json={"files": {"policy.yaml": asks, "tests/t.yaml": test}})
    assert made.status_code == 200
    assert any("asks the group `finance`, which has no members" in finding for finding in made.json()["findings"])
