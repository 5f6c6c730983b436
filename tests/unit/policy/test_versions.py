"""Policy versions: stored, promoted if their tests pass, and rolled back."""

from __future__ import annotations

import threading

import pytest

from codesdk.domain.clock import ManualClock
from codesdk.domain.decisions import Effect
from codesdk.policy import ActiveBundles, Call, PolicyInvalid, decide
from codesdk.policy.rollout import store
from codesdk.policy.rollout.store import ACTIVE, PinKey
from codesdk.policy.rollout.version_models import (
    SHARED,
    NoPreviousVersion,
    TestsFailed,
    VersionAction,
    VersionChange,
    VersionUnknown,
)
from codesdk.policy.rollout.version_service import RecordedBundles, VersionService

from .conftest import TOOLS, WRITE, subject

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY
CALL = Call(name="workspace.write", input={"path": "a", "content": ""})
KNOWN = {"workspace.write": WRITE}


def rules(effect, more=""):
    return f"version: 1\nrules: [{{id: a, effect: {effect}, tool: workspace.write}}]\n{more}"


def with_tests(effect, *expected):
    case = f"{{name: n, tool: workspace.write, input: {{}}, expect: {(*expected, effect)[0]}}}"
    return {"policy.yaml": rules(effect), "tests/t.yaml": f"version: 1\ncases: [{case}]\n"}


@pytest.fixture
def office(stage, tmp_path):
    return Office(stage, tmp_path)


class Office:
    """An installation's policy on the stage's database; `again` is another process on the same."""

    def __init__(self, stage, root):
        self.stage = stage
        self.root = root
        (root / "shared").mkdir(exist_ok=True)
        (root / "tenants").mkdir(exist_ok=True)
        if not (root / "shared" / "policy.yaml").exists():
            self.write(ALLOW)
        self.versions = VersionService(stage.database, stage.writer, stage.ids, TOOLS, stage.clock)
        self.active = ActiveBundles(root / "shared", TOOLS, ManualClock(), tenants=root / "tenants")
        self.active.follow(self.versions)

    def again(self):
        return Office(self.stage, self.root)

    def write(self, effect, tenant=None):
        place = self.root / "tenants" / tenant if tenant else self.root / "shared"
        place.mkdir(exist_ok=True)
        (place / "policy.yaml").write_text(rules(effect, f"# {effect}\n"))

    def effect(self, tenant="ten_1"):
        self.active.refresh()
        return decide(CALL, WRITE, subject(), self.active.of(tenant)).effect

    def promote(self, wanted, layer=SHARED):
        return self.versions.promote(layer, wanted, KNOWN, "prn_boss", "why")[0]

    def actions(self, layer=SHARED):
        return [entry.action for entry in self.versions.history(layer)]


def test_a_promoted_version_is_in_force_in_place_of_the_files_also_after_a_restart(office):
    before = office.active.shared.bundle.hash
    made = office.promote(with_tests(DENY))
    assert office.effect() is DENY
    office.write(ASK)
    assert (office.effect(), office.again().effect()) == (DENY, DENY)
    entry = office.versions.history(SHARED)[0]
    assert (entry.action, entry.hash, entry.before, entry.by, entry.comment) == (
        VersionAction.PROMOTE,
        made.hash,
        before,
        "prn_boss",
        "why",
    )
    chain, actor, details = office.stage.sql(
        "SELECT chain, actor, details FROM audit_entries WHERE act = 'policy.promoted'"
    )[0]
    assert (chain, actor, made.hash in details) == ("installation", "prn_boss", True)
    assert [(one.hash, one.active) for one in office.versions.listing(SHARED) if one.active] == [(made.hash, True)]


def test_a_version_that_fails_or_has_no_tests_or_cannot_be_read_never_becomes_active(office):
    for wanted, fault in (
        (with_tests(DENY, ALLOW), TestsFailed),
        ({"policy.yaml": rules(DENY)}, TestsFailed),
        ({"policy.yaml": "version: 1\nruls: []\n"}, PolicyInvalid),
        ({**with_tests(DENY), "tests/u.yaml": "cases: 3\n"}, PolicyInvalid),
        ("sha256:" + "0" * 64, VersionUnknown),
    ):
        with pytest.raises(fault):
            office.promote(wanted)
    assert office.effect() is ALLOW
    assert office.versions.pins() == {}
    assert office.actions() == [VersionAction.FILES]


def test_rollback_goes_back_step_by_step_to_what_the_files_said_and_no_further(office):
    office.promote(with_tests(DENY))
    office.promote(with_tests(ASK))
    assert office.effect() is ASK
    office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.effect() is DENY
    office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.effect() is ALLOW
    with pytest.raises(NoPreviousVersion):
        office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.actions() == [
        VersionAction.ROLLBACK,
        VersionAction.ROLLBACK,
        VersionAction.PROMOTE,
        VersionAction.PROMOTE,
        VersionAction.FILES,
    ]


def test_changed_files_can_be_taken_back_and_then_followed_again(office):
    office.write(DENY)
    assert office.effect() is DENY
    office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.effect() is ALLOW
    office.versions.unpin(SHARED, office.active.files_hash(SHARED), "prn_boss")
    assert office.effect() is DENY
    assert office.versions.pins() == {}


def test_an_earlier_version_is_promoted_by_its_hash_and_another_layers_is_not_found(office):
    first = office.promote(with_tests(DENY))
    office.promote(with_tests(ASK))
    office.promote(first.hash)
    assert office.effect() is DENY
    with pytest.raises(VersionUnknown):
        office.promote(first.hash, layer="ten_1")


def test_a_version_is_promoted_by_as_much_of_its_hash_as_tells_it_from_others(office):
    first = office.promote(with_tests(DENY))
    office.promote(with_tests(ASK))
    for short in (first.hash[:15], first.hash.removeprefix("sha256:")[:8]):
        assert office.promote(short).hash == first.hash
    for wrong in (first.hash[:14], "sha256:", "sha256:________", "%" * 8, ""):
        with pytest.raises(VersionUnknown):
            office.promote(wrong)


def test_a_beginning_that_several_versions_have_is_refused_with_their_hashes(office):
    one = office.promote(with_tests(DENY)).hash
    twin = one[:-1] + ("0" if one[-1] != "0" else "1")
    for table, columns in (("policy_texts", "sources"), ("policy_versions", "layer, name, made_at")):
        office.stage.sql(
            f"INSERT INTO {table} (hash, {columns}) SELECT '{twin}', {columns} FROM {table} WHERE hash = '{one}'"
        )
    with pytest.raises(VersionUnknown, match=twin):
        office.promote(one[:20])


def test_a_rollback_to_what_fails_its_own_tests_today_is_refused_and_changes_nothing(office):
    office.promote(with_tests(ALLOW))
    office.promote(with_tests(ASK))
    other = {"workspace.other": WRITE}
    with pytest.raises(TestsFailed, match="`n` fails: "):
        office.versions.roll_back(SHARED, other, "prn_boss")
    assert office.effect() is ASK
    assert VersionAction.ROLLBACK not in office.actions()
    with pytest.raises(TestsFailed, match="rollback --force"):
        office.versions.roll_back(SHARED, other, "prn_boss")
    office.versions.roll_back(SHARED, other, "prn_boss", force=True)
    assert office.effect() is ALLOW


def test_a_tenants_version_holds_for_that_tenant_alone_and_may_not_enable(office):
    office.promote(with_tests(DENY), layer="ten_1")
    assert (office.effect("ten_1"), office.effect("ten_2")) == (DENY, ALLOW)
    with pytest.raises(PolicyInvalid, match="cannot enable"):
        office.promote({**with_tests(DENY), "b.yaml": "version: 1\nenable: [workspace.exec]\n"}, layer="ten_1")


def test_nothing_starts_where_the_pinned_version_cannot_be_used(office):
    office.promote(with_tests(DENY))
    assert office.effect() is DENY
    office.stage.sql("UPDATE policy_texts SET sources = '{}'")
    with pytest.raises(PolicyInvalid):
        ActiveBundles(office.root / "shared", TOOLS, ManualClock()).follow(office.versions)
    assert office.effect() is DENY


def test_a_version_that_cannot_be_used_yet_is_said_and_taken_up_once_it_can(office):
    office.promote(with_tests(DENY))
    kept = office.stage.sql("SELECT hash, sources FROM policy_texts")
    office.stage.sql("UPDATE policy_texts SET sources = '{}'")
    assert office.effect() is ALLOW
    assert "no policy file" in str(office.active.problems()[SHARED])
    for bundle_hash, sources in kept:
        office.stage.sql("UPDATE policy_texts SET sources = :text WHERE hash = :of", text=sources, of=bundle_hash)
    assert office.effect() is DENY
    assert office.active.problems() == {}


def test_processes_that_tell_the_same_files_make_one_entry(office):
    office.again()
    office.again()
    assert office.actions() == [VersionAction.FILES]
    office.write(ASK)
    office.active.refresh()
    office.again()
    assert office.actions() == [VersionAction.FILES, VersionAction.FILES]


def test_commands_judge_by_what_the_installation_decides_by(office):
    office.write(DENY, tenant="ten_1")
    office.active.refresh()
    office.promote(with_tests(ASK))
    office.write(DENY, tenant="ten_gone")
    office.active.refresh()
    (office.root / "tenants" / "ten_gone" / "policy.yaml").unlink()
    (office.root / "tenants" / "ten_gone").rmdir()
    office.active.refresh()
    found = RecordedBundles(office.stage.database)
    of = found.with_shared(found.shared)
    effects = [decide(CALL, WRITE, subject(), of(tenant)).effect for tenant in ("ten_1", "ten_2", "ten_gone")]
    assert effects == [DENY, ASK, ASK]


def test_a_database_without_a_record_gives_no_bundle(stage):
    assert RecordedBundles(stage.database).shared is None


def test_what_is_pinned_is_told(office):
    made = office.promote(with_tests(DENY))
    office.active.refresh()
    assert (office.active.pinned(SHARED), office.versions.pins()) == (made.hash, {PinKey(SHARED, ACTIVE): made.hash})


def test_what_was_tried_without_tests_and_then_promoted_with_them_is_promoted_by_its_hash_later(office):
    office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    first = office.promote(with_tests(DENY))
    office.promote(with_tests(ASK))
    office.promote(first.hash)
    assert office.effect() is DENY


def test_what_is_in_force_is_known_however_many_candidates_were_tried_since(office):
    def note(unit):
        entry = VersionChange(action=VersionAction.SHADOW, hash=None, before=None, by="prn_boss", at=0.0)
        for number in range(1001):
            store.add_change(unit.connection, f"req_{number}", SHARED, entry)

    office.stage.writer.run(note)
    assert RecordedBundles(office.stage.database).shared.hash == office.active.shared.bundle.hash


def test_a_candidate_that_cannot_be_used_stops_no_start_and_is_said(office):
    office.versions.shadow(SHARED, {"policy.yaml": rules(DENY)}, "prn_boss")
    office.stage.sql("UPDATE policy_texts SET sources = '{}'")
    again = office.again()
    assert again.effect() is ALLOW
    assert "no policy file" in str(again.active.problems()[SHARED])


class SlowOnce(VersionService):
    """Its first answer about pins is told late."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.read, self.tell = threading.Event(), threading.Event()

    def pins(self):
        found = super().pins()
        if not self.read.is_set():
            self.read.set()
            assert self.tell.wait(10)
        return found


def test_a_look_that_began_before_a_promotion_does_not_bring_back_what_was_before(office):
    stage = office.stage
    slow = SlowOnce(stage.database, stage.writer, stage.ids, TOOLS, stage.clock)
    slow.read.set()
    office.active.follow(slow)
    slow.read.clear()
    early = threading.Thread(target=office.active.refresh)
    early.start()
    assert slow.read.wait(10)
    office.promote(with_tests(DENY))
    late = threading.Thread(target=office.active.refresh)
    late.start()
    late.join(0.2)  # were looks side by side, it would be done by then
    slow.tell.set()
    early.join(10)
    late.join(10)
    assert decide(CALL, WRITE, subject(), office.active.of("ten_1")).effect is DENY


def test_a_version_that_was_promoted_twice_is_still_taken_back(office):
    office.promote(with_tests(DENY))
    office.promote(with_tests(DENY))
    office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.effect() is ALLOW


def test_files_that_were_promoted_as_well_are_still_taken_back(office):
    office.write(DENY)
    assert office.effect() is DENY
    office.promote(with_tests(DENY))
    office.versions.roll_back(SHARED, KNOWN, "prn_boss")
    assert office.effect() is ALLOW
