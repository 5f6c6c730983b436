"""Reloading: completely or not at all; the last valid bundle stays."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from codesdk.domain.clock import ManualClock
from codesdk.domain.decisions import Effect
from codesdk.policy import ActiveBundles, Call, ExampleTool, PolicyInvalid, decide
from codesdk.policy.bundles.layers import make_session_layer
from codesdk.policy.rollout.active_bundles import DirectoryLayer
from codesdk.policy.rollout.version_models import SHARED

from .conftest import TOOLS, WRITE, subject

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


def write(directory, effect, *, file="policy.yaml", text=None):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / file
    fresh = directory / f".{file}"
    fresh.write_text(text or f"version: 1\nrules: [{{id: a, effect: {effect}}}]\n")
    fresh.rename(path)
    return path


@pytest.fixture
def active(tmp_path):
    write(tmp_path / "shared", ALLOW)
    (tmp_path / "tenants").mkdir()
    return ActiveBundles(tmp_path / "shared", TOOLS, ManualClock(), tenants=tmp_path / "tenants")


def effect(active, tenant="ten_1"):
    who = subject().model_copy(update={"tenant_id": tenant})
    return decide(
        Call(name="workspace.write", input={"path": "a", "content": ""}), WRITE, who, active.of(tenant)
    ).effect


def test_a_changed_file_is_in_force_after_the_next_look(active, tmp_path):
    assert effect(active) is ALLOW
    write(tmp_path / "shared", DENY)
    assert effect(active) is ALLOW
    active.refresh()
    assert effect(active) is DENY


def test_a_broken_file_never_becomes_active_and_is_told_until_it_is_mended(active, tmp_path):
    write(tmp_path / "shared", DENY, text="version: 1\nrules: [{id: a, effect: dney}]\n")
    active.refresh()
    assert effect(active) is ALLOW
    assert "policy.yaml:2:" in str(active.problems()["shared"])
    active.refresh()
    assert "shared" in active.problems()
    write(tmp_path / "shared", ASK)
    active.refresh()
    assert (effect(active), active.problems()) == (ASK, {})


def test_a_directory_that_vanishes_leaves_the_last_good_bundle(active, tmp_path):
    (tmp_path / "shared" / "policy.yaml").unlink()
    active.refresh()
    assert effect(active) is ALLOW
    assert "no policy file" in str(active.problems()["shared"])


def test_a_second_file_and_one_that_keeps_its_size_are_seen(active, tmp_path):
    write(tmp_path / "shared", DENY, file="more.yaml", text="version: 1\nrules: [{id: b, effect: deny}]\n")
    active.refresh()
    assert effect(active) is DENY
    path = write(tmp_path / "shared", None, file="more.yaml", text="version: 1\nrules: [{id: b, effect:  ask}]\n")
    os.utime(path, ns=(1, 1))
    active.refresh()
    assert effect(active) is ASK


def test_a_tenants_directory_is_taken_up_and_let_go_and_is_nobody_elses(active, tmp_path):
    write(tmp_path / "tenants" / "ten_1", DENY)
    active.refresh()
    assert (effect(active, "ten_1"), effect(active, "ten_2")) == (DENY, ALLOW)
    (tmp_path / "tenants" / "ten_1" / "policy.yaml").unlink()
    (tmp_path / "tenants" / "ten_1").rmdir()
    active.refresh()
    assert effect(active, "ten_1") is ALLOW


def test_a_tenant_whose_first_bundle_is_broken_is_denied_and_the_others_are_not(active, tmp_path):
    write(tmp_path / "tenants" / "ten_1", None, text="version: 1\nruls: []\n")
    active.refresh()
    assert (effect(active, "ten_1"), effect(active, "ten_2")) == (DENY, ALLOW)
    assert set(active.problems()) == {"ten_1"}
    write(tmp_path / "tenants" / "ten_1", ASK)
    active.refresh()
    assert effect(active, "ten_1") is ASK


def test_nothing_starts_with_a_broken_tenants_bundle(tmp_path):
    write(tmp_path / "shared", ALLOW)
    write(tmp_path / "tenants" / "ten_1", None, text="version: 1\nruls: []\n")
    with pytest.raises(PolicyInvalid, match="ruls"):
        ActiveBundles(tmp_path / "shared", TOOLS, ManualClock(), tenants=tmp_path / "tenants")


def test_a_rule_expires_without_a_reload(tmp_path):
    text = "version: 1\ndefault: ask\nrules: [{id: a, effect: allow, expires: 2026-03-01}, {id: z, effect: deny, tool: patch.apply}]\n"
    write(tmp_path / "shared", None, text=text)
    clock = ManualClock(datetime(2026, 3, 1, 23, 59, tzinfo=UTC))
    active = ActiveBundles(tmp_path / "shared", TOOLS, clock)
    assert effect(active) is ALLOW
    clock.advance(timedelta(minutes=2).total_seconds())
    assert effect(active) is ASK


def test_a_tenants_rules_let_nothing_through_once_every_shared_rule_has_expired(tmp_path):
    write(
        tmp_path / "shared", None, text="version: 1\ndefault: ask\nrules: [{id: a, effect: ask, expires: 2026-03-01}]\n"
    )
    write(tmp_path / "tenants" / "ten_1", ALLOW)
    clock = ManualClock(datetime(2026, 3, 1, 23, 59, tzinfo=UTC))
    active = ActiveBundles(tmp_path / "shared", TOOLS, clock, tenants=tmp_path / "tenants")
    clock.advance(timedelta(minutes=2).total_seconds())
    assert (effect(active, "ten_1"), effect(active, "ten_2")) == (DENY, DENY)


def test_watching_takes_a_change_up_by_itself(active, tmp_path):
    active.watch()
    try:
        write(tmp_path / "shared", DENY)
        deadline = time.monotonic() + 20
        while effect(active) is not DENY:
            assert time.monotonic() < deadline, "the change was not taken up"
            time.sleep(0.05)
    finally:
        active.close()


def test_nothing_starts_where_the_directory_of_tenants_is_not_there(tmp_path):
    write(tmp_path / "shared", ALLOW)
    with pytest.raises(PolicyInvalid, match=r"tenants' policies cannot be read: No such file"):
        ActiveBundles(tmp_path / "shared", TOOLS, ManualClock(), tenants=tmp_path / "tenants")


@pytest.mark.parametrize("there", ["nothing", "a file"])
def test_tenants_whose_directory_vanishes_keep_their_last_good_rules_and_it_is_said(active, tmp_path, caplog, there):
    write(tmp_path / "tenants" / "ten_1", DENY)
    active.refresh()
    (tmp_path / "tenants").rename(tmp_path / "away")
    if there == "a file":
        (tmp_path / "tenants").write_text("")
    for _ in range(3):
        active.refresh()
        assert (effect(active, "ten_1"), effect(active, "ten_2")) == (DENY, ALLOW)
    assert "cannot be read" in str(active.problems()["tenants"])
    assert [record.message for record in caplog.records if "stay as they are" in record.message][1:] == []
    if there == "a file":
        (tmp_path / "tenants").unlink()
    (tmp_path / "away").rename(tmp_path / "tenants")
    write(tmp_path / "tenants" / "ten_1", ASK)
    active.refresh()
    assert (effect(active, "ten_1"), active.problems()) == (ASK, {})


@pytest.mark.parametrize("damage", ["no text", "a directory", "gone"])
def test_a_tenants_file_that_cannot_be_read_leaves_its_last_good_rules(active, tmp_path, damage):
    path = write(tmp_path / "tenants" / "ten_1", DENY)
    active.refresh()
    path.unlink()
    if damage == "no text":
        path.write_bytes(b"\xff\xfe")
    elif damage == "a directory":
        path.mkdir()
    active.refresh()
    assert effect(active, "ten_1") is DENY
    assert "ten_1" in active.problems()


class Known:
    """The session layers of a test."""

    def __init__(self, **layers):
        self.layers = layers

    def of(self, bundle_hash):
        return self.layers[bundle_hash]


def test_a_sessions_rules_count_on_top_of_its_tenants_and_only_there(active, tmp_path):
    own = make_session_layer("version: 1\nrules: [{id: s, effect: ask, tool: workspace.write}]\n", TOOLS)
    active.set_session_rules(Known(h=own))
    call = Call(name="workspace.write", input={"path": "a", "content": ""})
    assert decide(call, WRITE, subject(), active.of("ten_1", "h")).effect is ASK
    assert decide(call, WRITE, subject(), active.of("ten_1")).effect is ALLOW
    write(tmp_path / "tenants" / "ten_1", DENY)
    active.refresh()
    assert decide(call, WRITE, subject(), active.of("ten_1", "h")).effect is DENY
    assert decide(call, WRITE, subject(), active.of("ten_2", "h")).effect is ASK


def test_a_session_whose_rules_are_not_known_is_denied_everything(active):
    assert decide(Call(name="workspace.write", input={}), WRITE, subject(), active.of("ten_1", "h")).effect is DENY


def test_a_changed_shared_bundle_lets_nothing_through_for_a_tenant_whose_own_rules_cannot_be_read(active, tmp_path):
    write(tmp_path / "tenants" / "ten_1", DENY, text="version: 1\nruls: []\n")
    active.refresh()
    candidate = active.with_layer(SHARED, active.shared.bundle, "ten_1", None)
    assert decide(Call(name="workspace.write", input={}), WRITE, subject(), candidate).effect is DENY
    assert effect(active) is DENY


def test_the_texts_of_a_bundle_are_those_that_it_was_made_from_though_the_file_has_changed_since(tmp_path):
    write(tmp_path, ALLOW)
    layer = DirectoryLayer(tmp_path, TOOLS)
    write(tmp_path, DENY)
    assert "effect: allow" in layer.sources()["policy.yaml"]
    layer.refresh()
    assert "effect: deny" in layer.sources()["policy.yaml"]


class Tools(dict):
    """The tools of an installation, and what one tenant adds."""

    def of_tenant(self, tenant):
        return {**self, "own.tool": SchemaTool("own.tool")} if tenant == "ten_1" else dict(self)


def known():
    return Tools({name: SchemaTool(name) for name in ("workspace.write", "billing.refund")})


class SchemaTool(ExampleTool):
    """A tool with a schema."""

    def __init__(self, name):
        super().__init__(name=name)

    @property
    def input_schema(self):
        return {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}


TESTED = "version: 1\ncases: [{{name: writing, tool: workspace.write, input: {{}}, expect: {expect}}}]\n"


def test_files_that_fail_their_own_tests_do_not_take_effect_until_they_pass(tmp_path):
    write(tmp_path / "shared", ALLOW)
    active = ActiveBundles(tmp_path / "shared", known(), ManualClock())
    write(tmp_path / "shared" / "tests", None, file="t.yaml", text=TESTED.format(expect="deny"))
    write(tmp_path / "shared", ASK)
    for _ in range(2):
        active.refresh()
        assert effect(active) is ALLOW
        assert "t.yaml:2:1: The test `writing` fails: expected deny, got ask" in str(active.problems()["shared"])
    write(tmp_path / "shared" / "tests", None, file="t.yaml", text=TESTED.format(expect="ask"))
    active.refresh()
    assert (effect(active), active.problems()) == (ASK, {})


def test_nothing_starts_with_files_that_fail_their_own_tests_unless_the_operator_says_so(tmp_path, caplog):
    write(tmp_path / "shared", ALLOW)
    write(tmp_path / "shared" / "tests", None, file="t.yaml", text=TESTED.format(expect="deny"))
    with pytest.raises(PolicyInvalid, match=r"The test `writing` fails"):
        ActiveBundles(tmp_path / "shared", known(), ManualClock())
    active = ActiveBundles(tmp_path / "shared", known(), ManualClock(), enforce_tests=False)
    assert effect(active) is ALLOW
    assert "The test `writing` fails" in caplog.text


def test_a_rule_about_a_removed_tool_stays_in_force_and_is_reported_until_it_is_back(tmp_path):
    write(tmp_path / "shared", None, text="version: 1\nrules: [{id: a, effect: deny, tool: billing.refund}]\n")
    tools = known()
    active = ActiveBundles(tmp_path / "shared", tools, ManualClock())
    removed = tools.pop("billing.refund")
    active.refresh()
    assert [rule.id for rule in active.of("ten_1").rules] == ["a"]
    assert "names the unknown tool `billing.refund`" in str(active.problems()["shared"])
    tools["billing.refund"] = removed
    active.refresh()
    assert active.problems() == {}


def test_a_tenants_rule_may_name_its_own_tools_and_no_other_tenants(tmp_path):
    write(tmp_path / "shared", ALLOW)
    text = "version: 1\nrules: [{id: a, effect: deny, tool: own.tool}]\n"
    write(tmp_path / "tenants" / "ten_1", None, text=text)
    active = ActiveBundles(tmp_path / "shared", known(), ManualClock(), tenants=tmp_path / "tenants")
    write(tmp_path / "tenants" / "ten_2", None, text=text)
    active.refresh()
    assert set(active.problems()) == {"ten_2"}


def test_every_problem_of_the_files_is_told_at_once(active, tmp_path):
    rules = "- {id: a, effect: deny, tool: workspace.wirte}\n- {id: b, effect: deny, server: worksapce}\n"
    write(tmp_path / "shared", None, text=f"version: 1\nrules:\n{rules}- {{id: b, effect: ask}}\n")
    active.refresh()
    told = str(active.problems()["shared"]).splitlines()
    assert [line.partition(" The rule")[0].rpartition("policy.yaml")[2] for line in told] == [
        ":3:25:",
        ":4:25:",
        ":5:4:",
    ]
