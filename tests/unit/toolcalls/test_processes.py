"""process.start, list, read and signal on a fake sandbox, from the submitted call to its recorded end."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from codesdk.domain.calls import DenialCode
from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.sandbox.port import ExecRequest, ExecResult, ExitKind
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.toolcalls.records.call_record import Denied, Finished
from codesdk.tools import processes
from sandboxes import spec
from stage import bundle
from tool_bench import bench

SECRET = b"tok_" + b"q7w8e9r0"
POLICY = """
version: 1
enable: [process.start, process.list, process.read, process.signal]
rules:
- {id: all, effect: allow}
"""
REDACTING = (
    POLICY
    + """
- {id: tokens, effect: allow, tool: process.start, obligations: {redactions: [{pattern: 'tok_[a-z0-9]{8}'}]}}
"""
)
POINTED = (
    POLICY
    + """
- {id: hidden, effect: allow, tool: process.start, obligations: {redactions: [{pointer: /argv}]}}
"""
)


class Desk:
    """An agent's calls, run one after the other on one fake sandbox."""

    def __init__(self, stage, policy, root):
        self.stage = stage
        stage.bundle = bundle(root / "background", policy, stage.registry)
        stage.pipeline = stage.pipeline_with(stage.bundle)
        self.script = Script(stdout=b"up\n")
        self.sandboxes = FakeSandboxes(lambda _: self.script)
        self.sandbox = self.sandboxes.open(spec("test", "sha256:fake", owner="sbx_1"))

    def use(self, name, **given):
        outcome = self.stage.pipeline.submit(name, given, self.stage.subject)
        claimed = self.stage.claims().take()
        assert claimed is not None, outcome
        self.stage.execution().run(claimed, lambda: self.sandbox)
        found = self.stage.find(claimed.stored.identity.tool_call_id)
        assert isinstance(found, Finished)
        return found.result

    def start(self, script=None, **given):
        self.script = script or self.script
        return self.use("process.start", **({"argv": ["serve"]} | given))


@pytest.fixture
def desk(stage, tmp_path):
    return Desk(stage, POLICY, tmp_path)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(processes, "STARTUP_WAIT_S", 0.02)


@pytest.fixture
def held():
    hold = threading.Event()
    yield Script(stdout=b"up\n", stderr=b"warned\n", hold=hold)
    hold.set()


def test_a_process_runs_on_after_its_call_and_is_found_and_read(desk, held):
    started = desk.start(held)
    name = started.structured["process"]
    assert (started.is_error, started.structured["running"]) == (False, True)
    assert [item["process"] for item in desk.use("process.list").structured["processes"]] == [name]
    read = desk.use("process.read", process=name, stream="stderr").structured
    assert (read["text"], read["next_offset"], read["running"], read["over"]) == ("warned\n", 7, True, False)
    assert desk.use("process.read", process=name, offset=3).structured["text"] == ""


def test_a_signal_ends_it_and_its_output_stays(desk, held):
    name = desk.start(held).structured["process"]
    assert desk.use("process.signal", process=name, signal="TERM").structured["sent"]
    read = desk.use("process.read", process=name, wait_s=20).structured
    while read["running"]:
        read = desk.use("process.read", process=name, offset=99, wait_s=20).structured
    assert (read["outcome"], read["signal"]) == ("signaled", 15)
    assert desk.use("process.read", process=name).structured["text"] == "up\n"
    again = desk.use("process.signal", process=name, signal="TERM")
    assert (again.is_error, again.structured["sent"]) == (False, False)


def test_what_could_not_start_is_an_error_that_says_why(desk):
    failed = desk.start(Script(result=ExecResult(kind=ExitKind.SPAWN_FAILED, error="no such file: serve")))
    assert (failed.is_error, failed.code) == (True, "SPAWN_FAILED")
    assert "no such file: serve" in failed.text


@pytest.mark.parametrize("name", ["process.read", "process.signal"])
def test_an_unknown_process_is_said_to_be_unknown(name, desk):
    more = {"signal": "INT"} if name == "process.signal" else {}
    result = desk.use(name, process="prc_0", **more)
    assert (result.is_error, result.code) == (True, "NO_SUCH_PROCESS")


def test_a_foreground_call_is_no_process_that_can_be_read(desk):
    desk.sandbox.exec(ExecRequest(call="prc_front", argv=("serve",)), lambda _: None)
    assert desk.use("process.list").structured["processes"] == []


def test_only_so_many_run_at_once(desk, held):
    for _ in range(processes.MAX_RUNNING):
        assert not desk.start(held).is_error
    refused = desk.start(held)
    assert (refused.is_error, refused.code) == (True, "TOO_MANY_PROCESSES")


def test_what_an_earlier_worker_started_for_a_call_is_not_refused_however_many_run(desk, held):
    """The refusal says that nothing was started."""
    desk.script = held
    desk.stage.pipeline.submit("process.start", {"argv": ["serve"]}, desk.stage.subject)
    claimed = desk.stage.claims().take()
    call = claimed.stored.identity.tool_call_id
    for name in (processes.process_id_of_call(call), *(f"prc_{number}" for number in range(processes.MAX_RUNNING))):
        desk.sandbox.processes.start(ExecRequest(call=name, argv=("serve",)))
    result = desk.stage.execution().run(claimed, lambda: desk.sandbox)
    assert (result.is_error, result.structured["process"]) == (False, processes.process_id_of_call(call))


def test_the_oldest_that_have_ended_are_forgotten(desk):
    names = [desk.start().structured["process"] for _ in range(processes.MAX_ENDED + 3)]
    left = [item["process"] for item in desk.use("process.list").structured["processes"]]
    assert left == names[2:]  # one more than is kept: the last start came after the look
    assert desk.use("process.read", process=names[0]).code == "NO_SUCH_PROCESS"


def test_half_a_character_at_the_end_of_a_piece_waits_for_its_other_half(desk):
    name = desk.start(Script(stdout="aß".encode())).structured["process"]
    first = desk.use("process.read", process=name, limit=2).structured
    assert (first["text"], first["next_offset"], first["over"]) == ("a", 1, False)
    rest = desk.use("process.read", process=name, offset=first["next_offset"]).structured
    assert (rest["text"], rest["over"]) == ("ß", True)


@pytest.mark.parametrize("data", [b"\xff\xfe", "ß".encode()])
def test_bytes_that_are_no_character_do_not_stop_a_reader(data, desk):
    name = desk.start(Script(stdout=data)).structured["process"]
    offset = 0
    for _ in data:
        offset = desk.use("process.read", process=name, offset=offset, limit=1).structured["next_offset"]
    assert offset == len(data)


def test_a_worker_that_takes_the_start_up_again_finds_the_process_and_starts_none(desk, held):
    started = desk.start(held)
    call = started.structured["process"].replace("prc_", "call_", 1)
    desk.script = Script(stdout=b"another")
    at = bench(desk.sandbox)
    at = replace(at, identity=at.identity.model_copy(update={"tool_call_id": call}))
    again = processes.start({"argv": ["serve"]}, at)
    assert again.structured["process"] == started.structured["process"]
    assert len(desk.sandboxes.runs) == 1


def test_policy_that_limits_the_time_of_a_start_limits_the_life_of_its_process(stage, tmp_path, held):
    policy = POLICY + "- {id: short, effect: allow, tool: process.start, obligations: {timeout_s: 5}}\n"
    desk = Desk(stage, policy, tmp_path)
    asked = []
    desk.sandboxes.choose = lambda request: asked.append(request) or held
    desk.start(timeout_s=3600)
    assert asked[0].timeout_s == 5


def test_what_is_read_of_a_process_is_redacted_as_its_start_says_once_it_has_ended(stage, tmp_path, held):
    desk = Desk(stage, REDACTING, tmp_path)
    running = desk.start(Script(stdout=b"a " + SECRET, hold=held.hold)).structured["process"]
    ended = desk.start(Script(stdout=b"b " + SECRET + b" c\n")).structured["process"]
    early = desk.use("process.read", process=running)
    assert (early.structured["text"], early.structured["over"]) == ("", False)
    assert "once the process has ended" in early.text
    late = desk.use("process.read", process=ended).structured
    assert (late["text"], late["over"]) == ("b [redacted] c\n", True)
    # No offset shows a part of what is redacted: offsets count what is shown.
    parts = [desk.use("process.read", process=ended, offset=at).structured["text"] for at in range(16)]
    assert all(part in "b [redacted] c\n" for part in parts)
    assert SECRET.decode() not in "".join(str(event.payload) for event in stage.events())


def test_a_pointer_of_the_start_hides_all_that_is_read(stage, tmp_path):
    desk = Desk(stage, POINTED, tmp_path)
    name = desk.start().structured["process"]
    read = desk.use("process.read", process=name)
    assert read.structured["text"] == "[redacted]"
    assert "up" not in read.text


ASKING = POLICY.replace("effect: allow", "effect: ask")


@pytest.mark.parametrize("policy", [POLICY, ASKING])
def test_a_profile_without_background_processes_denies_a_start_before_anybody_is_asked(stage, tmp_path, policy):
    desk = Desk(stage, policy, tmp_path)
    stage.sessions._profiles = Profiles({"default": Profile(), "foreground": Profile(background_processes=False)})
    for profile, refused in (("foreground", True), ("default", False)):
        subject = stage.open_session(profile=profile)
        outcome = desk.stage.pipeline.submit("process.start", {"argv": ["server"]}, subject)
        assert isinstance(outcome, Denied) is refused, outcome
    denied = stage.pipeline.submit("process.start", {"argv": ["server"]}, stage.open_session(profile="foreground"))
    assert denied.code is DenialCode.NOT_IN_PROFILE
    assert "no background processes" in denied.message
    assert len(stage.pending()) == (policy is ASKING)
