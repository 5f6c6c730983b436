"""Dry runs before approval; the call then runs as shown, or its result reports the difference."""

from __future__ import annotations

import threading

import pytest

from codesdk.approvals import Verdict
from codesdk.domain.calls import CallState, DenialCode
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules
from codesdk.sandbox.fake.sandboxes import FakeSandbox, Script
from codesdk.sandbox.port.faults import EngineUnavailable
from codesdk.sandbox.records.store import SandboxState, profile_text
from codesdk.toolcalls.previews.dry_run import dry_run_profile
from codesdk.toolcalls.previews.preview import MAX_DRY_RUNS
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Waiting
from codesdk.worker.deferred_approvals import dry_runs as trials
from codesdk.worker.deferred_approvals.dry_runs import MAX_DRY_RUNS_AT_ONCE, MAX_OF_TENANT, DryRuns
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from codesdk.worker.sandboxes.throwaway import ThrowawaySandboxes
from codesdk.worker.sandboxes.warm_pool import PoolSpec, WarmPool
from codesdk.worker.workspaces import workspace_copy as stills
from databases import ONLY_SQLITE
from stage import bundle, stored_call, wait_for

pytestmark = ONLY_SQLITE
ASKING = """\
version: 1
default: deny
enable: [workspace.exec]
rules:
  - id: all
    effect: ask
    tool: [workspace.exec, workspace.write, workspace.edit, workspace.move, workspace.delete, patch.apply, workspace.read]
    approval: {timeout: 10m, preview: true}
"""
HIDING = ASKING + '    obligations: {redactions: [{literal: "hunter2"}]}\n'
EDIT = ("workspace.edit", {"path": "a.txt", "old_text": "old", "new_text": "new"})
PATCH = ("patch.apply", {"patch": "*** Update File: a.txt\n@@\n-old\n+new\n"})
WRITE = ("workspace.write", {"path": "a.txt", "content": "new\n"})


class Previewer:
    """A crew that previews; calls run on its session's fake sandbox."""

    def __init__(self, stage, crew, tmp_path):
        self.stage = stage
        self.crew = crew
        self.place = tmp_path
        self.under(ASKING)
        self.previews = self.make(crew)
        self.made = [self.previews]
        crew.sandbox_registry.reconcile()
        self.files = self.room().files

    def under(self, policy):
        self.stage.bundle = bundle(self.place / f"policy{len(list(self.place.iterdir()))}", policy, self.stage.registry)
        self.stage.pipeline = self.stage.pipeline_with(self.stage.bundle)
        self.stage.pipeline.looks = False

    def make(self, crew, pipeline=None):
        copies = ThrowawaySandboxes(
            sandboxes=crew.sandboxes, host=crew.host, instance="ins", writer=self.stage.writer, ids=self.stage.ids
        )
        return DryRuns(
            host=crew.host,
            sandbox_registry=crew.sandbox_registry,
            throwaway=copies,
            deferred_approvals=(pipeline or self.stage.pipeline)._deferred,
            database=self.stage.database,
            place=self.place,
        )

    def pool(self, crew, specs=()):
        return WarmPool(
            sandboxes=crew.sandboxes,
            host=crew.host,
            instance="ins",
            database=self.stage.database,
            writer=self.stage.writer,
            clock=self.stage.clock,
            ids=self.stage.ids,
            specs=list(specs),
        )

    def room(self, subject=None):
        return self.crew.sandbox_registry.ready((subject or self.stage.subject).session_id)

    def submit(self, name, given, subject=None):
        return self.stage.pipeline.submit(name, given, subject or self.stage.subject)

    def looked(self):
        """Files are looked at for what is not tried."""
        FileFingerprints(
            host=self.crew.host,
            sandbox_registry=self.crew.sandbox_registry,
            deferred_approvals=self.stage.deferred,
            database=self.stage.database,
        ).look()

    def previewed(self):
        """The one approval, once it is asked for."""
        self.previews.look()
        (approval,) = wait_for(self.stage.pending, "the question")
        return approval

    def asked(self, name, given):
        self.submit(name, given)
        return self.previewed()

    def approve(self, approval=None):
        approval = approval or self.stage.pending()[0]
        self.stage.pipeline.vote(
            self.stage.principal.tenant_id,
            approval.id,
            Verdict.APPROVE,
            digest=approval.digest,
            by=self.stage.principal.id,
            comment=None,
        )

    def run(self):
        claimed = self.stage.claims(self.stage.bundle).take()
        assert isinstance(claimed, ClaimedCall), claimed
        return self.stage.execution().run(claimed, self.room)

    def copies(self):
        return self.stage.sql("SELECT state FROM sandboxes WHERE session_id IS NULL")

    def idle(self):
        return wait_for(lambda: not self.previews._jobs, "the trials to end")


@pytest.fixture
def previewer(stage, crew, tmp_path):
    made = Previewer(stage, crew, tmp_path / "previews") if (tmp_path / "previews").mkdir() is None else None
    yield made
    for each in made.made:
        each.close()


def test_nobody_is_asked_before_it_was_tried_and_nothing_of_the_workspace_changes(previewer):
    previewer.files.put("a.txt", b"old\n")
    waiting = previewer.submit(*WRITE)
    assert isinstance(waiting, Waiting)
    assert (waiting.is_being_previewed, previewer.stage.pending()) == (True, [])
    approval = previewer.previewed()
    assert approval.id == waiting.approval_id
    shown = approval.shown["preview"]
    assert "-old\n+new\n" in shown["diff"]
    assert [(each["path"], each["change"]) for each in shown["files"]] == [("a.txt", "modified")]
    assert previewer.files.read("a.txt").data == b"old\n"
    kinds = previewer.stage.types()
    assert kinds[-3:] == ["approval.preview_started", "approval.previewed", "approval.requested"]
    previewer.idle()
    assert (previewer.copies(), len(previewer.crew.sandboxes.living)) == ([], 1)


def test_a_write_makes_the_change_that_was_shown(previewer):
    for name, given in (
        WRITE,
        ("workspace.move", {"path": "a.txt", "target": "deep/b.txt"}),
        ("patch.apply", {"patch": "--- a/deep/b.txt\n+++ b/deep/b.txt\n@@ -1 +1 @@\n-new\n+patched\n"}),
        ("patch.apply", {"patch": "*** Update File: deep/b.txt\n*** Move to: deep/c.txt\n@@\n-patched\n+moved\n"}),
        ("workspace.edit", {"path": "deep/c.txt", "old_text": "moved", "new_text": "edited"}),
        ("workspace.delete", {"path": "deep", "recursive": True}),
    ):
        approval = previewer.asked(name, given)
        assert approval.shown["preview"]["files"]
        previewer.approve()
        result = previewer.run()
        assert (result.is_error, result.differs) == (False, ()), result
    assert [entry.path for entry in previewer.files.list(".").entries] == []


@pytest.mark.parametrize(
    ("name", "given", "between"),
    [
        (*WRITE, lambda files: files.put("a.txt", b"other\n")),
        (*WRITE, lambda files: files.put("a.txt", b"old\n", 0o755)),
        ("workspace.delete", {"path": "d", "recursive": True}, lambda files: files.put("d/more.txt", b"kept\n")),
        ("workspace.move", {"path": "d", "target": "e"}, lambda files: files.put("d/one.txt", b"changed\n")),
        ("workspace.move", {"path": "d", "target": "e"}, lambda files: files.put("e", b"in the way\n")),
        (*EDIT, lambda files: files.put("a.txt", b"old\nmore\n")),
        (*EDIT, lambda files: files.put("a.txt", b"old\n", 0o755)),
        (*PATCH, lambda files: files.put("a.txt", b"old\nmore\n")),
    ],
)
def test_a_write_on_a_workspace_that_has_changed_changes_nothing_and_says_so(previewer, name, given, between):
    previewer.files.put("a.txt", b"old\n")
    previewer.files.put("d/one.txt", b"1\n")
    previewer.asked(name, given)
    previewer.approve()
    between(previewer.files)
    before = previewer.files.manifest()
    result = previewer.run()
    assert (result.is_error, result.code) == (True, "FILES_CHANGED"), result
    assert "call again" in result.text
    assert previewer.files.manifest() == before


@pytest.mark.parametrize("call", [EDIT, PATCH], ids=["edit", "patch"])
def test_an_edit_is_shown_as_it_will_be_written(previewer, call):
    previewer.files.put("a.txt", b"one\r\nold\r\n")
    shown = previewer.asked(*call).shown["preview"]
    assert shown["diff"] == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\r\n-old\r\n+new\r\n"
    previewer.approve()
    assert previewer.run().differs == ()
    assert previewer.files.read("a.txt").data == b"one\r\nnew\r\n"


@pytest.mark.parametrize("call", [EDIT, PATCH], ids=["edit", "patch"])
def test_a_file_that_changes_right_before_it_is_read_is_not_edited(previewer, monkeypatch, call):
    previewer.files.put("a.txt", b"old\n")
    previewer.asked(*call)
    previewer.approve()
    files, read = previewer.files, previewer.files.read

    def race(path, **more):
        files.put("a.txt", b"old\nraced\n")
        return read(path, **more)

    monkeypatch.setattr(files, "read", race)
    assert previewer.run().code == "FILES_CHANGED"
    assert files.manifest().entries[0].size == len(b"old\nraced\n")


def test_a_write_that_something_gets_in_the_way_of_at_the_last_moment_changes_nothing(previewer, monkeypatch):
    previewer.files.put("a.txt", b"old\n")
    previewer.asked(*WRITE)
    previewer.approve()
    files, stat = previewer.files, previewer.files.stat

    def race(path):
        files.put("a.txt", b"raced\n")
        return stat(path)

    monkeypatch.setattr(files, "stat", race)
    assert previewer.run().code == "FILES_CHANGED"
    assert files.read("a.txt").data == b"raced\n"


def test_a_command_that_comes_out_the_same_is_not_remarked_on(previewer):
    previewer.crew.scripts["make"] = Script(stdout=b"made\n", writes={"out.txt": b"1\n"})
    shown = previewer.asked("workspace.exec", {"command": "make"}).shown["preview"]
    assert (shown["exit_code"], shown["stdout"], shown["files"][0]["path"]) == (0, "made\n", "out.txt")
    assert "stderr" not in shown
    previewer.approve()
    result = previewer.run()
    assert (result.is_error, result.differs) == (False, ())
    assert previewer.files.read("out.txt").data == b"1\n"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Script(stdout=b"made\n", exit_code=3, writes={"out.txt": b"1\n"}), "exit code 3, in the preview 0"),
        (Script(stdout=b"other\n", writes={"out.txt": b"1\n"}), "another stdout"),
        (Script(stdout=b"made\n", stderr=b"!", writes={"out.txt": b"1\n"}), "another stderr"),
        (Script(stdout=b"made\n", writes={"out.txt": b"2\n"}), "other changes: out.txt"),
        (Script(stdout=b"made\n", writes={"out.txt": b"1\n", "more": b""}), "other changes: more"),
    ],
)
def test_a_command_that_comes_out_otherwise_is_flagged_in_event_answer_and_transcript(previewer, other, said):
    previewer.crew.scripts["make"] = Script(stdout=b"made\n", writes={"out.txt": b"1\n"})
    previewer.asked("workspace.exec", {"command": "make"})
    previewer.approve()
    previewer.crew.scripts["make"] = other
    result = previewer.run()
    assert result.differs == (said,)
    assert said in result.text
    assert previewer.stage.events()[-1].payload["differs"] == [said]


def test_what_a_later_worker_takes_up_cannot_be_compared_and_says_so(previewer):
    previewer.crew.scripts["make"] = Script(stdout=b"made\n", writes={"out.txt": b"1\n"})
    previewer.asked("workspace.exec", {"command": "make"})
    previewer.approve()
    claimed = previewer.stage.claims(previewer.stage.bundle).take()
    taken_up = claimed.model_copy(update={"behaviour_hash": None})
    result = previewer.stage.execution().run(taken_up, previewer.room)
    assert result.differs == ("what it changed could not be compared",)


def test_a_cancel_of_what_a_later_worker_takes_up_waits_for_what_its_runner_says(previewer):
    previewer.crew.scripts["make"] = Script(stdout=b"made\n", writes={"out.txt": b"1\n"})
    previewer.asked("workspace.exec", {"command": "make"})
    previewer.approve()
    claimed = previewer.stage.claims(previewer.stage.bundle).take()
    room = previewer.room()
    room.cancel(claimed.stored.identity.tool_call_id, claimed.stored.identity.attempt)
    taken_up = claimed.model_copy(update={"behaviour_hash": None})
    result = previewer.stage.execution().run(taken_up, lambda: room)
    assert (result.code, result.is_error) == (None, False)
    assert previewer.files.read("out.txt").data == b"1\n"


def test_a_yes_is_about_the_preview(previewer):
    previewer.files.put("a.txt", b"old\n")
    approval = previewer.asked(*WRITE)
    previewer.approve()
    previewer.stage.tampered = True
    previewer.stage.sql(
        "UPDATE tool_calls SET preview = replace(preview, :was, :now)",
        was=approval_hash(approval, previewer),
        now="sha256:" + "0" * 64,
    )
    denied = previewer.stage.claims(previewer.stage.bundle).take()
    assert isinstance(denied, Denied)
    assert denied.code is DenialCode.VOIDED


def approval_hash(approval, previewer):
    return stored_call(previewer.stage.database, approval.tool_call_id).preview.shown_hash


def test_a_tool_that_only_reads_is_asked_about_without(previewer):
    previewer.submit("workspace.read", {"path": "a.txt"})
    (approval,) = previewer.stage.pending()
    assert "preview" not in approval.shown


def test_what_goes_on_in_the_background_is_asked_about_without(previewer):
    tools = "[process.start, process.signal]"
    previewer.under(
        ASKING.replace("[workspace.exec]", tools).replace("tool: [workspace.exec,", f"tool: [{tools[1:-1]},")
    )
    previewer.submit("process.start", {"command": "sleep 1"})
    (approval,) = wait_for(lambda: previewer.looked() or previewer.stage.pending(), "the question")
    assert "preview" not in approval.shown


def test_a_trial_may_reach_no_host_that_its_session_may(previewer):
    stage, asked = previewer.stage, []
    host = {"host": "api.example.com", "ports": [443]}
    profile = stage.profile.model_copy(update={"egress": EgressRules.model_validate({"rules": [host]})})
    stage.sql("UPDATE sessions SET profile = :profile", profile=profile_text(profile))
    previewer.crew.sandboxes.choose = lambda request: asked.append(request) or Script(stdout=b"done")
    previewer.asked("workspace.exec", {"command": "make"})
    previewer.approve()
    assert previewer.run().differs == ()
    assert [bool(request.egress) for request in asked] == [False, True]
    assert rehearsal_profile(stage, asked).egress == DENY_ALL


def rehearsal_profile(stage, asked):
    return dry_run_profile(stored_call(stage.database, asked[0].call))


def test_what_policy_hides_is_in_no_preview(previewer):
    previewer.under(HIDING)
    previewer.previews = previewer.make(previewer.crew)
    previewer.made.append(previewer.previews)
    previewer.crew.scripts["leak"] = Script(stdout=b"pass hunter2\n", writes={"hunter2.txt": b"hunter2\n"})
    shown = previewer.asked("workspace.exec", {"command": "leak"}).shown["preview"]
    assert "hunter2" not in str(shown)
    assert "[redacted]" in shown["diff"]


def test_what_cannot_be_tried_is_shown_as_that_and_can_be_approved(previewer, monkeypatch):
    monkeypatch.setattr(stills, "MAX_BYTES", 10)
    approval = previewer.asked(*WRITE)
    assert "for a preview" in approval.shown["preview"]["failed"]
    previewer.approve()
    result = previewer.run()
    assert (result.is_error, result.differs) == (False, ())
    previewer.idle()
    assert previewer.copies() == []


@pytest.mark.parametrize("drift", [{"network_interfaces": ("lo", "eth0")}, {"runtime": "plain"}])
def test_nothing_is_tried_where_it_could_reach_a_network_or_the_machine(previewer, monkeypatch, drift):
    facts = previewer.room().attestation.model_copy(update=drift)
    monkeypatch.setattr(FakeSandbox, "attestation", facts)
    approval = previewer.asked("workspace.exec", {"command": "make"})
    assert "not closed off enough" in approval.shown["preview"]["failed"]
    assert previewer.crew.sandboxes.runs == []


def test_while_the_engine_is_away_it_is_begun_again_once_and_then_said(previewer, monkeypatch):
    waiting = previewer.submit(*WRITE)
    opens = previewer.crew.sandboxes.open

    def away(spec):
        raise EngineUnavailable("fake://engine", "away")

    monkeypatch.setattr(previewer.crew.sandboxes, "open", away)
    previewer.previews.look()
    previewer.idle()
    assert previewer.stage.pending() == []
    assert stored_call(previewer.stage.database, waiting.identity.tool_call_id).preview_tries == 1
    approval = previewer.previewed()
    assert "away" in approval.shown["preview"]["failed"]
    monkeypatch.setattr(previewer.crew.sandboxes, "open", opens)
    previewer.idle()
    assert previewer.copies() == []


def test_a_preview_that_was_lost_with_its_worker_is_begun_again_once_and_leaves_nothing(previewer):
    stage = previewer.stage
    previewer.submit("workspace.exec", {"command": "hold"})
    crew = previewer.crew
    for number in range(1, MAX_DRY_RUNS + 1):
        previews = previewer.make(crew)
        previews.look()
        wait_for(lambda c=crew: len(c.sandboxes.living) == 2, "the copy")
        assert stage.types().count("approval.preview_started") == number
        # The worker is gone from here on: what it still does is of an older generation, and reaches nothing.
        previews._put = previews._refund = lambda *_: None
        crew = crew.next()
        crew.sandboxes.choose = crew.choose
        previewer.pool(crew).tend()
        assert len(crew.sandboxes.living) == 1
        previews.close()
        crew.sandbox_registry.sweep()
        assert previewer.copies() == []
    previewer.previews = previewer.make(crew)
    previewer.made.append(previewer.previews)
    approval = previewer.previewed()
    assert approval.shown["preview"]["failed"] == trials.LOST_TWICE
    assert len(crew.sandboxes.living) == 1


def test_a_worker_that_stops_takes_its_copies_with_it_and_the_next_one_begins_again(previewer):
    call = previewer.submit("workspace.exec", {"command": "hold"}).identity.tool_call_id
    for number in range(1, MAX_DRY_RUNS + 2):
        previewer.previews.look()
        wait_for(lambda n=number: len(previewer.crew.sandboxes.runs) == n, "the trial")
        previewer.previews.close()
        assert (previewer.copies(), previewer.stage.pending(), len(previewer.crew.sandboxes.living)) == ([], [], 1)
        assert stored_call(previewer.stage.database, call).preview_tries == 0
        previewer.previews = previewer.make(previewer.crew)
        previewer.made.append(previewer.previews)
    previewer.crew.hold.set()
    previewer.previews = previewer.make(previewer.crew)
    previewer.made.append(previewer.previews)
    assert previewer.previewed().shown["preview"]["stdout"] == "held"


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_call_that_is_cancelled_or_closed_ends_its_preview(previewer, end):
    stage = previewer.stage
    waiting = previewer.submit("workspace.exec", {"command": "hold"})
    previewer.previews.look()
    wait_for(lambda: previewer.crew.sandboxes.runs, "the trial")
    if end == "cancel":
        assert stage.cancel(waiting.identity.tool_call_id, "no")
    else:
        stage.sessions.close(stage.subject.tenant_id, stage.subject.session_id)
    previewer.previews.look()
    previewer.idle()
    assert (previewer.copies(), stage.pending()) == ([], [])
    assert stored_call(stage.database, waiting.identity.tool_call_id).state is CallState.DENIED
    assert stage.types().count("approval.previewed") == 0


def test_so_many_are_tried_at_once_for_a_tenant_and_for_a_host_and_the_others_wait_in_order(previewer):
    stage = previewer.stage
    others = [stage.enroll(f"other{number}", "dev")[0] for number in range(3)]
    sessions = [stage.subject, *(stage.open_session() for _ in range(3))]
    sessions += [stage.open_session(principal) for principal in others for _ in range(2)]
    previewer.crew.sandbox_registry.reconcile()
    for subject in sessions:
        previewer.submit("workspace.exec", {"command": "hold"}, subject)
    runs = previewer.crew.sandboxes.runs
    previewer.previews.look()
    wait_for(lambda: len(runs) == MAX_DRY_RUNS_AT_ONCE, "the first trials")
    previewer.previews.look()
    at_work = [job.stored for job in previewer.previews._jobs.values()]
    assert len(at_work) == MAX_DRY_RUNS_AT_ONCE
    own = [stored.subject.session_id for stored in at_work if stored.tenant_id == stage.principal.tenant_id]
    assert own == [subject.session_id for subject in sessions[:MAX_OF_TENANT]]
    previewer.crew.hold.set()

    def asked():
        previewer.previews.look()
        return stage.sql("SELECT count(*) FROM approvals")[0][0] == len(sessions)

    wait_for(asked, "every question", 30)


def test_a_preview_holds_up_no_running_call_of_its_session(previewer):
    gate = threading.Event()
    previewer.crew.scripts["slow"] = Script(stdout=b"slow", hold=gate)
    previewer.submit("workspace.exec", {"command": "slow"})
    previewer.previews.look()
    wait_for(lambda: previewer.crew.sandboxes.runs, "the trial")
    assert previewer.room().exec(request_of("direct"), lambda _chunk: None).exit_code == 0
    gate.set()
    previewer.idle()


def request_of(line):
    from codesdk.sandbox.port import ExecRequest  # noqa: PLC0415

    return ExecRequest(call="call_other", argv=("bash", "-c", line))


def test_a_policy_that_wants_no_preview_any_more_asks_without(previewer):
    previewer.submit(*WRITE)
    plain = bundle(previewer.place / "plain", ASKING.replace(", preview: true", ""), previewer.stage.registry)
    previewer.previews = previewer.make(previewer.crew, previewer.stage.pipeline_with(plain))
    previewer.made.append(previewer.previews)
    assert "preview" not in previewer.previewed().shown


def test_demands_that_changed_while_it_was_tried_have_it_tried_anew(previewer):
    other = previewer.stage.pipeline_with(bundle(previewer.place / "hiding", HIDING, previewer.stage.registry))
    trial = other._deferred.trial
    other._deferred.trial = previewer.stage.deferred.trial  # what was decided when the trial began
    previewer.submit(*WRITE)
    previews = previewer.make(previewer.crew, other)
    previewer.made.append(previews)
    previews.look()
    wait_for(lambda: not previews._jobs, "the trial to end")
    assert previewer.stage.pending() == []
    other._deferred.trial = trial
    previews.look()
    assert wait_for(previewer.stage.pending, "the question")


def test_a_copy_is_taken_from_the_pool_where_one_waits_and_never_goes_back(previewer):
    stage, crew = previewer.stage, previewer.crew
    pool = previewer.pool(crew, [PoolSpec(profile=stage.profile, image="sha256:" + "0" * 64, size=1)])
    pool.tend()
    (pooled,) = set(crew.sandboxes.living) - {previewer.room().owner}
    call = previewer.asked("workspace.exec", {"command": "make"}).tool_call_id
    previewer.idle()
    assert crew.sandboxes.runs == [(pooled, call, 1)]
    assert (previewer.copies(), pooled in crew.sandboxes.living) == ([], False)
    pool.tend()
    assert previewer.copies() == [(SandboxState.POOLED.value,)]


def test_a_copy_is_of_no_session_and_of_no_pool(previewer):
    previewer.submit("workspace.exec", {"command": "hold"})
    previewer.previews.look()
    wait_for(lambda: previewer.crew.sandboxes.runs, "the trial")
    previewer.pool(previewer.crew).tend()
    assert previewer.copies() == [(SandboxState.COPY.value,)]
    assert len(previewer.crew.sandboxes.living) == 2
