from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.artifacts import ArtifactsUnavailable
from codesdk.domain.calls import IllegalTransition
from codesdk.domain.clock import SystemClock
from codesdk.domain.decisions import SandboxBounds
from codesdk.domain.events import EventType
from codesdk.domain.quotas import QuotaExceeded, UnlimitedQuotas
from codesdk.errors import Fault, InternalFault
from codesdk.eventlog.log import MAX_EVENT_BYTES
from codesdk.registry import Registry
from codesdk.sandbox.port import Chunk, ExecResult, ExitKind, OutputCount, ProcessLimits
from codesdk.sandbox.port.faults import SandboxGone
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.database import StorageUnavailable
from codesdk.storage.faults import DatabaseLoginRefused, ValueRefused
from codesdk.toolcalls import execution
from codesdk.toolcalls.records import call_events
from codesdk.toolcalls.records.call_record import Finished
from codesdk.toolcalls.retries import store as retry_store
from codesdk.toolcalls.run.output_log import DELTA_BYTES, DELTA_S, RETRY_S, FlushTimer
from databases import ONLY_SQLITE
from stage import Room, bundle, said


def gone():
    return SandboxGone("sbx", "its container is exited")


def claim(stage, name="workspace.exec", given=None):
    stage.pipeline.submit(name, given or {"command": "x"}, stage.subject)
    return stage.claims().take()


def run(stage, play, name="workspace.exec", given=None):
    claimed, room = claim(stage, name, given), Room(play)
    result = stage.execution().run(claimed, lambda: room)
    return claimed, room, result


def deltas(stage, stream="stdout"):
    return [
        event.payload
        for event in stage.events()
        if event.type == "tool.output.delta" and event.payload["stream"] == stream
    ]


def ending(stage):
    return stage.events()[-1].payload


BOUNDED = """\
version: 1
enable: [workspace.exec]
rules:
  - id: bounded
    effect: allow
    obligations:
      timeout_s: 7
      sandbox: {memory_bytes: 64MiB, pids: 90, file_bytes: 10, keep_output_bytes: 99, show_output_bytes: 512, egress: a.web.example}
"""
HOSTS = Profile(egress={"rules": [{"host": "*.web.example"}, {"host": "b.test"}]})


@pytest.fixture
def bounded(stage, tmp_path):
    stage.sql("UPDATE sessions SET profile = :profile", profile=HOSTS.model_dump_json())
    stage.bundle = bundle(tmp_path / "bounded", BOUNDED, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    return stage


def test_what_policy_demands_of_the_sandbox_holds_for_the_exec(bounded):
    _, room, _ = run(bounded, said(b""))
    asked = room.requests[0]
    assert asked.limits == ProcessLimits(memory_bytes=64 << 20, pids=90, file_bytes=10)
    assert (asked.timeout_s, asked.keep_bytes) == (7, 99)
    assert [rule.host for rule in asked.egress.rules] == ["a.web.example"]


def test_a_tool_that_changed_between_claim_and_run_is_not_run(stage):
    """Its manifest was taken up anew while the sandbox opened."""
    claimed, room = claim(stage), Room(said(b""))
    stage.registry = Registry(replace(tool, behaviour_hash="sha256:other") for tool in stage.registry.tools())
    result = stage.execution().run(claimed, lambda: room)
    assert (result.code, room.requests) == ("TOOL_CHANGED", [])


def test_a_tools_own_bounds_hold_beside_those_of_policy_and_the_tightest_counts(bounded):
    own = SandboxBounds(pids=100, memory_bytes=40 << 20, keep_output_bytes=50, egress=())
    bounded.registry = Registry(replace(tool, sandbox=own) for tool in bounded.registry.tools())
    claimed = claim(bounded)
    room = Room(said(b""))
    bounded.execution().run(claimed, lambda: room)
    asked = room.requests[0]
    assert (asked.limits.memory_bytes, asked.limits.pids, asked.limits.file_bytes) == (40 << 20, 90, 10)
    assert (asked.keep_bytes, asked.egress.rules) == (50, ())


def test_what_a_tool_attaches_is_an_artifact_of_its_call(bounded):
    head = {"url": "http://a.web.example/", "status": 200, "reason": "OK", "headers": [["content-type", "image/png"]]}
    head |= {"redirects": [], "location": None, "cut": False}
    hosts = Profile(egress={"rules": [{"host": "*.web.example", "protocol": "http"}]})
    bounded.sql("UPDATE sessions SET profile = :profile", profile=hosts.model_dump_json())
    given = {"url": "http://a.web.example/"}
    _, room, result = run(bounded, said(json.dumps(head).encode() + b"\n\xff\x00"), "http.fetch", given)
    assert (result.structured["body"], result.structured["artifact"]) == (None, True)
    (artifact,) = bounded.artifacts.listing(bounded.principal.tenant_id, bounded.subject.session_id)
    assert bounded.artifacts.read(artifact) == b"\xff\x00"
    assert [rule.host for rule in room.requests[0].egress.rules] == ["a.web.example"]


def test_what_policy_demands_is_in_the_record(bounded):
    run(bounded, said(b""))
    evaluated = next(event for event in bounded.events() if event.type == "tool.call.policy_evaluated")
    assert evaluated.payload["obligations"]["sandbox"]["egress"] == ["a.web.example"]
    assert evaluated.payload["obligations"]["timeout_s"] == 7


def test_a_file_tool_keeps_the_size_that_policy_demands(bounded):
    given = {"path": "a.txt", "content": "x" * 11}
    _, room, result = run(bounded, said(b""), "workspace.write", given)
    assert (result.is_error, result.code) == (True, "TOO_LARGE")
    assert room.files.stat("a.txt").error == "NOT_FOUND"
    _, room, result = run(bounded, said(b""), "workspace.write", {**given, "content": "x" * 10})
    assert not result.is_error


def test_a_command_runs_and_its_end_is_the_calls_last_event(stage):
    claimed, room, result = run(stage, said(b"hello\n"))
    assert not result.is_error
    assert result.structured["stdout"] == "hello\n"
    assert room.acknowledged == [claimed.stored.identity.tool_call_id]
    assert stage.types()[-4:] == [
        "tool.call.started",
        "tool.output.delta",
        "tool.output.completed",
        "tool.call.completed",
    ]
    assert ending(stage)["executed_by"] == "codesdk"
    assert not ending(stage)["is_error"]
    outcome = stage.find(claimed.stored.identity.tool_call_id)
    assert isinstance(outcome, Finished)
    assert outcome.result.structured == result.structured


def test_the_exec_is_the_claims_own(stage):
    claimed, room, _ = run(stage, said(b""))
    (request,) = room.requests
    assert (request.call, request.attempt) == (claimed.stored.identity.tool_call_id, 1)
    assert request.timeout_s == claimed.timeout_s
    assert request.keep_bytes == stage.profile.keep_output_bytes


def test_a_command_may_ask_for_less_time_and_not_for_more(stage):
    _, room, _ = run(stage, said(b""), given={"command": "x", "timeout_s": 3})
    assert room.requests[0].timeout_s == 3


def test_a_failing_command_is_a_result_with_its_exit_code(stage):
    _, _, result = run(stage, said(b"out", ("stderr", b"err"), exit_code=3))
    assert result.is_error
    assert result.code is None
    assert (result.structured["exit_code"], result.structured["stderr"]) == (3, "err")
    assert "[exit code 3]" in result.text
    assert ending(stage)["is_error"]


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (ExitKind.TIMED_OUT, "TIMED_OUT", "timed out"),
        (ExitKind.CANCELLED, "CANCELLED", "cancelled"),
        (ExitKind.OOM_KILLED, "OOM_KILLED", "out of memory"),
        (ExitKind.DISK_FULL, "DISK_FULL", "workspace is full"),
        (ExitKind.SIGNALED, "SIGNALED", "signal 11"),
        (ExitKind.SPAWN_FAILED, "SPAWN_FAILED", "could not start"),
    ],
)
def test_every_kind_of_end_is_told_apart(stage, kind, code, words):
    end = ExecResult(kind=kind, signal=11 if kind is ExitKind.SIGNALED else None, error="no such file")
    _, _, result = run(stage, lambda _request, _on_output: end)
    assert result.is_error
    assert result.code == code == ending(stage)["code"]
    assert words in result.text


def test_a_sandbox_that_does_not_open_is_a_recorded_result(stage):
    claimed = claim(stage)

    def broken():
        raise gone()

    result = stage.execution().run(claimed, broken)
    assert (result.is_error, result.code) == (True, "SANDBOX_GONE")
    assert stage.types()[-1] == "tool.call.completed"


def test_a_sandbox_that_breaks_keeps_the_output_that_came(stage):
    def breaks(_request, on_output):
        on_output(Chunk(stream="stdout", offset=0, data=b"half"))
        raise gone()

    _, _, result = run(stage, breaks)
    assert result.code == "WORKER_LOST"
    assert "its container is exited" in result.text
    assert [delta["delta"] for delta in deltas(stage)] == ["half"]
    assert stage.types()[-2:] == ["tool.output.completed", "tool.call.completed"]


def test_the_output_of_an_attempt_that_is_lost_is_counted_as_far_as_it_had_come(stage):
    def breaks(_request, on_output):
        for offset in (0, DELTA_BYTES):
            on_output(Chunk(stream="stdout", offset=offset, data=b"x" * DELTA_BYTES))
        on_output(Chunk(stream="stderr", offset=100, data="é\xff".encode("latin-1")))
        on_output(Chunk(stream="stdout", offset=2 * DELTA_BYTES, data=b"more"))
        raise gone()

    before = stage.events()[-1].seq
    run(stage, breaks)
    told = stage.events(after=before)
    (counted,) = [event.payload for event in told if event.type == "tool.output.completed"]
    assert counted["stdout"] == {"bytes": 2 * DELTA_BYTES + 4, "shown": 0, "dropped": 0, "gap": 0}
    assert counted["stderr"]["bytes"] == 102
    assert (counted["cut_off"], counted["attempt"]) == (True, told[-1].payload["attempt"])


def test_an_attempt_that_is_lost_without_output_has_none_counted(stage):
    def breaks(_request, _on_output):
        raise gone()

    run(stage, said(b"of another call"))
    run(stage, breaks)
    counted = [event.payload for event in stage.events() if event.type == "tool.output.completed"]
    assert ["cut_off" in each for each in counted] == [False]


@ONLY_SQLITE
def test_what_a_lost_attempt_printed_is_sought_in_no_more_of_the_log_than_since_its_start(stage):
    def printed(count):
        claimed = claim(stage)
        call = claimed.stored
        chunk = call_events.output_delta(call.call, call.subject, "stdout", 0, "x" * 100)

        def many(unit):
            for _ in range(count):
                stage.log.append(unit, chunk)

        stage.writer.run(many)
        return claimed

    def ended(claimed):
        stage.execution().run(claimed, Room)

    def steps(claimed):
        """How much the database does to find its output, in steps of its own program."""
        call = claimed.stored
        with stage.database.read() as connection:
            driver, taken = connection.connection.driver_connection, []
            driver.set_progress_handler(lambda: taken.append(1) and None, 10)
            found = retry_store.output_payloads(connection, call.subject.session_id, call.identity)
            driver.set_progress_handler(None, 0)
        return len(taken), len(found)

    first = printed(3)
    few, count = steps(first)
    assert count == 3
    ended(first)
    ended(printed(1000))
    many, count = steps(printed(3))
    assert (count, many <= 2 * few) == (3, True), (few, many)


def test_output_is_found_though_another_calls_start_names_the_call(stage):
    claimed = claim(stage)
    call = claimed.stored
    other = call.call.model_copy(update={"identity": call.identity.model_copy(update={"tool_call_id": "call_other"})})
    named = claimed.sandbox.model_copy(update={"mounts": (f"/{call.identity.tool_call_id}",)})
    printed = call_events.output_delta(call.call, call.subject, "stdout", 0, "x")
    stage.tampered = True
    drafts = (printed, call_events.started(other, call.subject, claimed.environment, named))
    stage.writer.run(lambda unit: [stage.log.append(unit, draft) for draft in drafts])
    with stage.database.read() as connection:
        found = retry_store.output_payloads(connection, call.subject.session_id, call.identity)
    assert [payload["delta"] for payload in found] == ["x"]


def test_a_defect_ends_the_call_too(stage):
    # A claim that never ends would hold a serial workspace until the worker restarts.
    def defect(_request, _on_output):
        raise KeyError("a defect")

    claimed, _, result = run(stage, defect)
    assert (result.is_error, result.code) == (True, "INTERNAL")
    assert "a defect" not in result.text
    assert isinstance(stage.find(claimed.stored.identity.tool_call_id), Finished)


def test_a_result_that_is_not_what_the_manifest_promises_is_an_error(stage):
    end = ExecResult.model_construct(
        kind=ExitKind.EXITED, exit_code=0, signal=None, duration_s=-1.0, stdout=OutputCount(), stderr=OutputCount()
    )
    _, _, result = run(stage, lambda _request, _on_output: end)
    assert result.is_error


def test_output_is_streamed_while_the_command_runs(stage):
    seen = []

    def play(_request, on_output):
        on_output(Chunk(stream="stdout", offset=0, data=b"one"))
        seen.append(len(deltas(stage)))
        stage.clock.advance(DELTA_S)
        on_output(Chunk(stream="stdout", offset=3, data=b"two"))
        seen.append(len(deltas(stage)))
        on_output(Chunk(stream="stdout", offset=6, data=b"x" * DELTA_BYTES))
        seen.append(len(deltas(stage)))
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=6 + DELTA_BYTES))

    run(stage, play)
    assert seen == [0, 1, 2]
    assert [(delta["offset"], len(delta["delta"])) for delta in deltas(stage)] == [(0, 6), (6, DELTA_BYTES)]


class Silent:
    """Commands that print and then say nothing; what the log has at moments of that silence."""

    def __init__(self, stage):
        self.stage, self.timer, self.seen = stage, FlushTimer(stage.clock), []

    def pass_time(self, seconds):
        self.stage.clock.advance(seconds)
        self.timer.run_due()
        self.seen.append([delta["delta"] for delta in deltas(self.stage)])

    def run(self, play):
        claimed = claim(self.stage)
        execution = self.stage.execution(flush_timer=self.timer)
        execution.run(claimed, lambda: Room(play))
        return self.seen


def test_output_is_written_a_tenth_of_a_second_after_the_last_event_though_silence_follows(stage):
    silent = Silent(stage)

    def play(_request, on_output):
        on_output(Chunk(stream="stdout", offset=0, data=b"Listening\n"))
        silent.pass_time(DELTA_S / 2)
        silent.pass_time(DELTA_S / 2)
        on_output(Chunk(stream="stdout", offset=10, data=b"a"))
        on_output(Chunk(stream="stdout", offset=11, data=b"b"))
        silent.pass_time(DELTA_S / 2)
        silent.pass_time(DELTA_S / 2)
        silent.pass_time(100 * DELTA_S)
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=12))

    first = ["Listening\n"]
    assert silent.run(play) == [[], first, first, [*first, "ab"], [*first, "ab"]]
    assert "".join(delta["delta"] for delta in deltas(stage)) == "Listening\nab"


def test_output_that_waits_when_its_call_ends_is_written_once_and_before_the_end(stage):
    silent = Silent(stage)
    end = ExecResult(kind=ExitKind.CANCELLED, stdout=OutputCount(bytes=4))

    def play(_request, on_output):
        on_output(Chunk(stream="stdout", offset=0, data=b"last"))
        return end

    silent.run(play)
    before = stage.types()
    silent.pass_time(10 * DELTA_S)
    assert silent.seen == [["last"]]
    assert (stage.types(), before[-1]) == (before, "tool.call.completed")


def test_output_is_written_when_a_database_that_was_away_is_back_though_silence_follows(stage, caplog):
    silent = Silent(stage)

    def away(_work):
        raise StorageUnavailable("The database refused: disk I/O error.")

    def play(_request, on_output):
        write, stage.writer.run = stage.writer.run, away
        on_output(Chunk(stream="stdout", offset=0, data=b"Listening\n"))
        for _ in range(5):
            silent.pass_time(RETRY_S)
        stage.writer.run = write
        silent.pass_time(RETRY_S)
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=10))

    assert silent.run(play) == [[]] * 5 + [["Listening\n"]]
    assert len([record for record in caplog.records if "waits" in record.message]) == 1


def test_a_timer_writes_nothing_of_a_call_that_a_newer_worker_has(stage):
    silent = Silent(stage)

    def play(_request, on_output):
        on_output(Chunk(stream="stdout", offset=0, data=b"late"))
        stage.sql("UPDATE tool_calls SET generation = 2")
        silent.pass_time(DELTA_S)
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=4))

    with pytest.raises(IllegalTransition):
        silent.run(play)
    assert silent.seen == [[]]


def test_a_defect_in_one_calls_output_holds_back_no_others(stage):
    silent, written = Silent(stage), []

    class Broken:
        def flush(self):
            raise RuntimeError("a defect")

    class Sound:
        def flush(self):
            written.append(1)

    for output in (Broken(), Sound()):
        silent.timer.schedule(output, stage.clock.monotonic())
    silent.timer.run_due()
    assert written == [1]


def test_a_started_timer_writes_output_and_ends_when_it_is_closed(stage):
    written = threading.Event()

    class Output:
        def flush(self):
            written.set()

    timer = FlushTimer(SystemClock())
    timer.start()
    timer.schedule(Output(), time.monotonic() + 0.01)
    assert written.wait(30)
    timer.close()
    assert not timer._thread.is_alive()


def test_a_character_cut_by_chunks_and_by_the_other_stream_is_whole(stage):
    euro = "€".encode()

    def play(_request, on_output):
        sizes = {"stdout": 0, "stderr": 0}
        for stream, data in [
            ("stdout", b"a" + euro[:1]),
            ("stderr", euro[:2]),
            ("stdout", euro[1:2]),
            ("stderr", euro[2:]),
            ("stdout", euro[2:] + b"b"),
        ]:
            stage.clock.advance(DELTA_S)
            on_output(Chunk(stream=stream, offset=sizes[stream], data=data))
            sizes[stream] += len(data)
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=5), stderr=OutputCount(bytes=3))

    run(stage, play)
    assert [(delta["offset"], delta["delta"]) for delta in deltas(stage)] == [(0, "a"), (1, "€b")]
    assert [(delta["offset"], delta["delta"]) for delta in deltas(stage, "stderr")] == [(0, "€")]


pieces = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=9) | st.just("é€😀".encode())),
    max_size=15,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces, st.integers(1, 5))
def test_the_deltas_of_a_stream_are_its_bytes_decoded_and_their_offsets_are_right(stage, chunks, cut):
    small = [(stream, data[at : at + cut]) for stream, data in chunks for at in range(0, len(data), cut)]
    before = stage.log.head(stage.session.id)
    sizes = {"stdout": 0, "stderr": 0}

    def play(_request, on_output):
        for stream, data in small:
            stage.clock.advance(DELTA_S / 2)
            on_output(Chunk(stream=stream, offset=sizes[stream], data=data))
            sizes[stream] += len(data)
        return ExecResult(
            kind=ExitKind.EXITED,
            exit_code=0,
            stdout=OutputCount(bytes=sizes["stdout"]),
            stderr=OutputCount(bytes=sizes["stderr"]),
        )

    run(stage, play)
    for stream in ("stdout", "stderr"):
        whole = b"".join(data for name, data in small if name == stream)
        found = [
            e.payload
            for e in stage.events(after=before)
            if e.type == "tool.output.delta" and e.payload["stream"] == stream
        ]
        assert "".join(delta["delta"] for delta in found) == whole.decode("utf-8", "replace")
        before_it = ""
        for delta in found:
            assert whole[: delta["offset"]].decode("utf-8", "replace") == before_it
            before_it += delta["delta"]


def test_long_output_is_shown_in_part_and_kept_byte_for_byte(stage):
    whole = bytes(range(256)) * 1024
    claimed, _, result = run(stage, said(whole[:100_000], whole[100_000:]))
    assert result.structured["truncated"]
    assert result.structured["stdout_bytes"] == len(whole)
    outcome = stage.find(claimed.stored.identity.tool_call_id)
    kept = [stage.artifacts.find(stage.principal.tenant_id, artifact) for artifact in outcome.result.artifacts]
    output = next(artifact for artifact in kept if artifact.name.endswith("stdout.bin"))
    assert stage.artifacts.read(output) == whole
    assert outcome.result.stdout.bytes == len(whole)
    assert outcome.result.stdout.shown <= stage.profile.show_output_bytes


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_short_output_that_is_not_text_is_kept_byte_for_byte(stage, stream, exit_code):
    claimed, _, result = run(stage, said((stream, b"\x7fELF\xff"), (stream, b"\x00\x80"), exit_code=exit_code))
    assert result.structured[stream].startswith("[7 bytes of binary output (an ELF program) are not shown")
    assert "\ufffd" not in result.text
    (artifact,) = stage.artifacts.listing(stage.principal.tenant_id, stage.subject.session_id)
    assert stage.artifacts.read(artifact) == b"\x7fELF\xff\x00\x80"
    assert stage.find(claimed.stored.identity.tool_call_id).result.artifacts == (artifact.id,)


def test_a_whole_output_is_read_with_workspace_read_by_its_address_and_by_no_other_session(stage):
    printed = "".join(f"{number}\n" for number in range(20_000))
    claimed, _, result = run(stage, said(printed.encode()))
    assert "[… " in result.text
    (artifact, *_) = stage.find(claimed.stored.identity.tool_call_id).result.artifacts
    address = {"path": f"codesdk://artifacts/{artifact}", "offset": 19_999}
    _, _, page = run(stage, said(b""), "workspace.read", address)
    assert page.structured["content"] == "19998\n19999\n"
    stage.subject = stage.open_session()
    _, _, refused = run(stage, said(b""), "workspace.read", address)
    assert (refused.code, refused.structured) == ("NOT_FOUND", None)


def test_short_output_leaves_no_artifact(stage):
    claimed, _, _ = run(stage, said(b"short"))
    assert stage.find(claimed.stored.identity.tool_call_id).result.artifacts == ()


def test_what_was_dropped_is_counted(stage):
    run(stage, said(b"kept", dropped=1000))
    counted = next(event for event in stage.events() if event.type == "tool.output.completed").payload
    assert counted["stdout"] == {"bytes": 1004, "shown": 4, "dropped": 1000, "gap": 4}


def kept_output(stage, claimed):
    outcome = stage.find(claimed.stored.identity.tool_call_id)
    kept = [stage.artifacts.find(stage.principal.tenant_id, artifact) for artifact in outcome.result.artifacts]
    return outcome.result, stage.artifacts.read(next(each for each in kept if "-stdout." in each.name))


def test_where_bytes_were_dropped_the_artifact_has_a_mark_with_counts_at_the_place_that_the_result_names(stage):
    claimed, _, _ = run(stage, said(b"head" * 100, b"HEAD", 5000, b"tail", b"TAIL" * 100))
    result, stored = kept_output(stage, claimed)
    gap, after = result.stdout.gap, result.stdout.bytes - result.stdout.gap - result.stdout.dropped
    assert stored[:gap] == b"head" * 100 + b"HEAD"
    assert stored[-after:] == b"tail" + b"TAIL" * 100
    mark = stored[gap:-after].decode()
    assert mark.startswith("\n[codesdk: 5000 of 5808 bytes were dropped here, from byte 404 to byte 5404;")
    assert mark.endswith("]\n")


def test_where_nothing_was_kept_after_the_drop_the_mark_is_the_artifacts_end(stage):
    claimed, _, _ = run(stage, said(b"kept", dropped=1000))
    result, stored = kept_output(stage, claimed)
    assert stored[: result.stdout.gap] == b"kept"
    assert b"1000 of 1004 bytes were dropped here" in stored[result.stdout.gap :]


def test_what_is_shown_of_a_cut_stream_never_joins_its_ends(stage):
    """Also where all that was kept would fit into what is shown."""
    _, _, result = run(stage, said(b"head", 5000, b"tail"))
    shown = result.structured["stdout"]
    assert (
        shown
        == "head\n[… 5000 bytes left out; 5000 of them were too many to keep and are lost, the rest is in the artifact …]\ntail"
    )
    assert result.structured["truncated"]


def test_a_large_result_is_an_artifact_with_a_preview(stage):
    _, _, result = run(stage, said(b"x" * 19_000))
    end = ending(stage)
    artifact = stage.artifacts.find(stage.principal.tenant_id, end["result_ref"]["artifact_id"])
    assert result.text.encode() in stage.artifacts.read(artifact)
    assert 0 < len(end["result_preview"]) <= 1024


def test_output_survives_a_database_that_is_away_for_a_moment(stage):
    def play(_request, on_output):
        stage.clock.advance(DELTA_S)
        write, stage.writer.run = stage.writer.run, away
        on_output(Chunk(stream="stdout", offset=0, data=b"first "))
        stage.writer.run = write
        on_output(Chunk(stream="stdout", offset=6, data=b"second"))
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=12))

    def away(_work):
        raise StorageUnavailable("The database refused: disk I/O error.")

    _, _, result = run(stage, play)
    assert not result.is_error
    assert "".join(delta["delta"] for delta in deltas(stage)) == "first second"


@pytest.mark.parametrize("byte", [b"\0", b"\xff", b'"', b"a"])
def test_a_full_chunk_of_any_byte_fits_the_log_and_the_call_ends(stage, byte):
    # JSON makes six bytes of a NUL: one event of a chunk as runners send it would be larger than the log takes.
    chunk = byte * (60 * 1024)
    _, room, result = run(stage, said(chunk, chunk))
    assert not result.is_error
    assert stage.types()[-1] == "tool.call.completed"
    assert "".join(delta["delta"] for delta in deltas(stage)) == (2 * chunk).decode(errors="replace")
    assert len(room.acknowledged) == 1


def test_output_that_gathers_while_the_database_is_away_is_recorded_in_events_that_the_log_takes(stage):
    text = b"x" * (MAX_EVENT_BYTES // 2)

    def play(_request, on_output):
        write, stage.writer.run = stage.writer.run, away
        for number in range(4):
            on_output(Chunk(stream="stdout", offset=number * len(text), data=text))
        stage.writer.run = write
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=4 * len(text)))

    def away(_work):
        raise StorageUnavailable("The database refused: disk I/O error.")

    _, _, result = run(stage, play)
    assert not result.is_error
    place = 0
    for delta in deltas(stage):
        assert delta["offset"] == place
        place += len(delta["delta"])
    assert place == 4 * len(text)


@pytest.mark.parametrize("away", ["writer", "artifacts"])
def test_an_end_that_database_or_disk_refuse_waits_until_they_take_it(stage, monkeypatch, away):
    # No poll finds a running call: dropped, it would hold its workspace until the worker restarts.
    monkeypatch.setattr(execution, "RETRY_S", 0.01)
    claimed, room = claim(stage), Room(said(b"x" * 100_000))
    owner, name = {"writer": (stage.writer, "run"), "artifacts": (stage.artifacts, "put")}[away]
    real, tries = getattr(owner, name), []

    def refuses(*given, **more):
        tries.append(1)
        if len(tries) < 5:
            raise StorageUnavailable("full") if away == "writer" else ArtifactsUnavailable("full")
        return real(*given, **more)

    monkeypatch.setattr(owner, name, refuses)
    result = stage.execution().run(claimed, lambda: room)
    assert not result.is_error
    assert stage.types()[-1] == "tool.call.completed"
    assert "".join(delta["delta"] for delta in deltas(stage)) == "x" * 100_000
    assert room.acknowledged == [claimed.stored.identity.tool_call_id]


def test_an_end_that_waits_is_the_next_workers_once_this_one_lets_go(stage, monkeypatch):
    monkeypatch.setattr(execution, "RETRY_S", 0.01)
    claimed, room, runs = claim(stage), Room(said(b"x")), stage.execution()

    def refuses(_work):
        runs.abandon()
        raise StorageUnavailable("full")

    monkeypatch.setattr(stage.writer, "run", refuses)
    with pytest.raises(StorageUnavailable):
        runs.run(claimed, lambda: room)
    assert room.acknowledged == []


def test_an_end_that_cannot_be_recorded_is_not_acknowledged(stage):
    claimed, room = claim(stage), Room(said(b"x"))
    stage.writer.close()
    with pytest.raises(Fault):
        stage.execution().run(claimed, lambda: room)
    assert room.acknowledged == []


def test_a_worker_that_lets_go_ends_no_call_that_still_runs(stage):
    # Closing a connection tells whoever waits that the sandbox is gone; the command lives on for the next worker.
    claimed, runs = claim(stage), stage.execution()

    def cut(_request, _on_output):
        runs.abandon()
        raise gone()

    before = stage.events()
    with pytest.raises(SandboxGone):
        runs.run(claimed, lambda: Room(cut))
    assert stage.events() == before


def test_an_end_that_comes_after_letting_go_is_recorded(stage):
    claimed, runs = claim(stage), stage.execution()

    def play(request, on_output):
        runs.abandon()
        return said(b"x")(request, on_output)

    runs.run(claimed, lambda: Room(play))
    assert stage.types()[-1] == "tool.call.completed"


def test_a_runner_that_is_gone_at_the_end_changes_nothing_of_it(stage):
    claimed, room = claim(stage), Room(said(b"x"))
    room.acknowledge = lambda *_: (_ for _ in ()).throw(gone())
    assert not stage.execution().run(claimed, lambda: room).is_error
    assert stage.types()[-1] == "tool.call.completed"


def test_a_worker_that_lost_the_call_adds_nothing_to_its_log(stage):
    def play(_request, on_output):
        stage.sql("UPDATE tool_calls SET generation = 2")
        stage.clock.advance(DELTA_S)
        on_output(Chunk(stream="stdout", offset=0, data=b"late"))
        return ExecResult(kind=ExitKind.EXITED, exit_code=0)

    claimed, room = claim(stage), Room(play)
    before = stage.events()
    with pytest.raises(IllegalTransition):
        stage.execution().run(claimed, lambda: room)
    assert stage.events() == before
    assert room.acknowledged == []


class Full(UnlimitedQuotas):
    """Has no room for artifacts."""

    def reserve(self, unit, tenant, resource, amount=1):  # noqa: ARG002
        raise QuotaExceeded(resource, used=1, limit=1, asked=amount, advice="Delete some.")


@pytest.mark.parametrize("lines", [10, 40_000])
def test_a_call_whose_output_no_quota_has_room_for_ends_and_says_what_is_lost(stage, lines):
    stage.artifacts = stage.artifacts_with(Full())
    claimed, room, _ = run(stage, said(b"line\n" * lines))
    assert room.acknowledged == [claimed.stored.identity.tool_call_id]
    outcome = stage.find(claimed.stored.identity.tool_call_id)
    assert isinstance(outcome, Finished)
    assert outcome.result.artifacts == ()
    if lines == 10:
        assert not outcome.result.is_error, "nothing had to be kept"
    else:
        assert "not kept" in outcome.result.text
        assert outcome.result.code == "QUOTA_EXCEEDED"
        structured = outcome.result.structured
        assert (structured["exit_code"], structured["truncated"]) == (0, True)
        assert structured["stdout"].startswith("line\nline\n")
    assert stage.artifacts.listing(stage.principal.tenant_id) == []


def test_an_end_that_cannot_be_recorded_whole_is_recorded_without_its_artifacts(stage, monkeypatch):
    def keep(*_args, **_more):
        raise InternalFault("nothing is kept")

    monkeypatch.setattr(stage.artifacts, "put", keep)
    claimed, _, result = run(stage, said(b"y\n" * 30_000))
    assert (result.is_error, result.code) == (True, InternalFault.code)
    assert "nothing is kept" in result.text
    ended = stage.events()[-1]
    assert (ended.type, ended.payload["code"]) == (EventType.CALL_COMPLETED, InternalFault.code)
    assert ended.payload["tool_call_id"] == claimed.stored.identity.tool_call_id


def refusing(stage, monkeypatch, fault, times):
    """The writer refuses so many units of work."""
    real, tries = stage.writer.run, []

    def run_unit(work):
        tries.append(1)
        if len(tries) <= times:
            raise fault
        return real(work)

    monkeypatch.setattr(stage.writer, "run", run_unit)
    return tries


def test_an_end_that_no_login_records_is_given_time_to_be_mended_and_then_left_to_the_next_worker(stage, monkeypatch):
    monkeypatch.setattr(execution, "RETRY_S", 0.0)
    claimed, room = claim(stage), Room(said(b""))
    tries = refusing(stage, monkeypatch, DatabaseLoginRefused("wrong password"), times=1_000_000)
    waited = []

    def wait(timeout_s):
        waited.append(timeout_s)
        stage.clock.advance(execution.REPAIR_TIMEOUT_S / 10)
        return False

    runs = stage.execution()
    monkeypatch.setattr(runs._abandoned, "wait", wait)
    with pytest.raises(DatabaseLoginRefused):
        runs.run(claimed, lambda: room)
    assert 10 <= len(tries) <= 12
    assert room.acknowledged == [], "its output is still the runner's to give"


def test_an_end_that_a_mended_login_records_is_recorded(stage, monkeypatch):
    monkeypatch.setattr(execution, "RETRY_S", 0.0)
    claimed, room = claim(stage), Room(said(b""))
    refusing(stage, monkeypatch, DatabaseLoginRefused("wrong password"), times=3)
    assert not stage.execution().run(claimed, lambda: room).is_error
    assert stage.types()[-1] == "tool.call.completed"


def test_a_value_that_the_database_refuses_is_not_tried_again_and_the_call_ends_without_it(stage, monkeypatch):
    claimed, room = claim(stage), Room(said(b""))
    tries = refusing(stage, monkeypatch, ValueRefused("a NUL"), times=1)
    result = stage.execution().run(claimed, lambda: room)
    assert len(tries) == 2
    assert "a NUL" in result.text
    assert stage.types()[-1] == "tool.call.completed"
    assert room.acknowledged == [claimed.stored.identity.tool_call_id]
