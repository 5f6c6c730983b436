"""What logs and calls may take in the database: counted by session, limited by tenant and by rate."""

from __future__ import annotations

import pytest

from codesdk.archive.retention import Retention
from codesdk.domain.byte_rate import NO_BYTE_RATE, ByteBuckets, ByteRate
from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import QuotaExceeded, Resource
from codesdk.eventlog.log import EVENT_BYTES
from codesdk.sandbox.port import Chunk, ExecResult, ExitKind, OutputCount
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.decision.log_limits import CALL_RESERVE_BYTES, USAGE_S, LogLimits
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Finished, Queued
from codesdk.toolcalls.run.output_log import DELTA_S
from codesdk.toolcalls.statistics import store as statistics
from stage import FixedBundle, Room, said

KIB = 1024
ROOM = 2 * CALL_RESERVE_BYTES


class Limited:
    """A stage whose calls are limited."""

    def __init__(self, stage, rate=NO_BYTE_RATE):
        self.stage, self.rate = stage, rate
        self.tenant = stage.principal.tenant_id
        self.limits, self.worker_limits = self.make_limits(), self.make_limits()
        decisions = CallDecisions(FixedBundle(stage.bundle, stage.rules), stage.approval_service)
        self.pipeline = stage.pipeline_of(stage.registry, decisions, log_limits=self.limits)

    def make_limits(self):
        """As another process has them."""
        return LogLimits(self.stage.database, self.stage.quotas, self.rate, self.stage.clock)

    def submit(self, command="x", subject=None, **more):
        return self.pipeline.submit("workspace.exec", {"command": command}, subject or self.stage.subject, **more)

    def take(self):
        return self.stage.claims(log_limits=self.worker_limits).take()

    def run(self, play=None, **more):
        claimed = self.take()
        assert isinstance(claimed, ClaimedCall)
        self.stage.execution(**more).run(claimed, lambda: Room(play or said(b"out")))
        return self.stage.find(claimed.stored.identity.tool_call_id)

    def used(self, tenant=None):
        return self.stage.quotas.find(self.stage.database, tenant or self.tenant, Resource.LOG_BYTES).used

    def leave(self, room):
        """Set a limit that leaves so many bytes, and let it be noticed."""
        self.stage.limit(Resource.LOG_BYTES, self.used() + room)
        self.stage.clock.advance(USAGE_S)

    def rows(self):
        """Bytes of the texts that the counter is about."""
        events = self.stage.sql("SELECT body FROM events")
        calls = self.stage.sql("SELECT input, result FROM tool_calls")
        asked = self.stage.sql("SELECT shown FROM approvals")
        texts = [text for row in (*events, *calls, *asked) for text in row if text is not None]
        return sum(len(text.encode()) for text in texts) + EVENT_BYTES * len(events)


@pytest.fixture
def limited(stage):
    return Limited(stage)


def test_events_inputs_results_and_approvals_are_counted_to_the_byte(limited, stage):
    limited.submit("a" * 5000 + "é€")
    limited.run(said("é\0".encode() * 3000))
    asked = stage.pipeline.submit("workspace.write", {"path": "a", "content": "ü" * 100}, stage.subject)
    stage.pipeline.cancel(limited.tenant, stage.session.id, asked.identity.tool_call_id, "no longer needed.")
    assert limited.used() == limited.rows()


def test_a_full_tenant_gets_no_new_call_and_leaves_no_record_of_it(limited, stage):
    limited.leave(CALL_RESERVE_BYTES - 1)
    before, head = limited.used(), stage.log.head(stage.session.id)
    refused = limited.submit("b" * 20_000)
    assert isinstance(refused, Denied)
    assert (refused.code, refused.retry_after_s) == (DenialCode.LOG_QUOTA_EXCEEDED, 60.0)
    assert "codesdk events prune" in refused.message
    assert "codesdk tenants quota" in refused.message
    assert (limited.used(), stage.log.head(stage.session.id)) == (before, head)
    assert stage.sql("SELECT count(*) FROM blobs")[0] == (0,), "nor are its bytes kept"
    with stage.database.read() as connection:
        assert statistics.denial_totals(connection) == {"LOG_QUOTA_EXCEEDED": 1}


def test_a_call_that_was_recorded_runs_to_its_end_in_a_full_tenant(limited, stage):
    limited.submit()
    limited.leave(0)
    outcome = limited.run(said(b"y" * 30_000))
    assert isinstance(outcome, Finished)
    assert not outcome.result.is_error
    assert stage.types()[-1] == "tool.call.completed"


def test_a_repeated_call_is_answered_in_a_full_tenant(limited):
    first = limited.submit(runtime_tool_call_id="one")
    limited.run()
    limited.leave(0)
    again = limited.submit(runtime_tool_call_id="one")
    assert isinstance(again, Finished)
    assert again.identity == first.identity


def test_room_is_kept_for_the_ends_of_calls_in_progress(limited):
    limited.leave(ROOM)
    assert isinstance(limited.submit("1"), Queued)
    limited.stage.clock.advance(USAGE_S)
    assert isinstance(limited.submit("2"), Denied)


def test_two_sessions_of_a_tenant_share_its_room_and_another_tenant_has_its_own(limited, stage):
    sibling = stage.open_session()
    stranger, _ = stage.enroll("other", "eve")
    foreign = stage.open_session(stranger)
    limited.submit("a" * 4000, sibling)
    limited.leave(0)
    assert isinstance(limited.submit("1"), Denied)
    assert isinstance(limited.submit("1", sibling), Denied)
    assert isinstance(limited.submit("1", foreign), Queued)
    assert limited.used(stranger.tenant_id) > 0


def test_a_full_tenant_opens_no_session(limited, stage):
    limited.leave(0)
    with pytest.raises(QuotaExceeded, match="log bytes"):
        stage.open_session()


def test_removed_sessions_give_their_bytes_back(limited, stage):
    old = stage.open_session()
    limited.submit("a" * 5000, old)
    limited.run()
    limited.leave(0)
    assert isinstance(limited.submit(), Denied)
    stage.sessions.close(limited.tenant, old.session_id)
    stage.sql("UPDATE sandboxes SET state = 'gone' WHERE session_id = :session", session=old.session_id)
    held = limited.used()
    retention = Retention(database=stage.database, writer=stage.writer, artifacts=stage.artifacts, clock=stage.clock)
    assert retention.prune(-1.0, reason="test").sessions == (old.session_id,)
    assert limited.used() == limited.rows() < held - 5000
    stage.limit(Resource.LOG_BYTES, held + CALL_RESERVE_BYTES)
    stage.clock.advance(USAGE_S)
    assert isinstance(limited.submit(), Queued)


def test_a_raised_limit_is_seen_within_a_second(limited, stage):
    limited.leave(0)
    assert isinstance(limited.submit(), Denied)
    stage.limit(Resource.LOG_BYTES, 0)
    assert isinstance(limited.submit(), Denied)
    stage.clock.advance(USAGE_S)
    assert isinstance(limited.submit(), Queued)


# -- the rate ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def paced(stage):
    return Limited(stage, ByteRate(per_s=KIB, burst=16 * KIB))


def fill(paced, subject=None):
    """Submit and run calls until one is refused; the refusal."""
    for number in range(100):
        outcome = paced.submit(f"{number}" + "a" * 4000, subject)
        if isinstance(outcome, Denied):
            return outcome
        paced.run()
    raise AssertionError("no call was refused")


def test_a_session_that_grows_too_fast_waits_until_it_has_paid_off(paced, stage):
    refused = fill(paced)
    assert (refused.code, refused.retry_after_s > 0) == (DenialCode.LOG_RATE_EXCEEDED, True)
    assert f"Try again in {refused.retry_after_s:.1f} s" in refused.message
    head = stage.log.head(stage.session.id)
    stage.clock.advance(refused.retry_after_s / 2)
    assert isinstance(paced.submit("again"), Denied)
    assert stage.log.head(stage.session.id) == head
    stage.clock.advance(refused.retry_after_s / 2 + 0.1)
    assert isinstance(paced.submit("again"), Queued)


def test_a_sessions_rate_is_its_own(paced, stage):
    sibling = stage.open_session()
    fill(paced)
    assert isinstance(paced.submit("1", sibling), Queued)


def test_every_process_sees_what_all_have_written(paced, stage):
    """The counter is in the session's row."""
    paced.submit("first")
    paced.run()
    other = Limited(stage, paced.rate)
    other.submit("seen first")
    other.run()
    fill(paced)
    assert isinstance(other.submit("second"), Denied)


def test_queued_calls_of_a_session_deep_in_debt_are_denied_on_record(paced, stage):
    for number in range(3):
        paced.submit(str(number))
    paced.run()
    stage.sql("UPDATE sessions SET log_bytes = log_bytes + :more", more=paced.rate.burst)
    assert isinstance(paced.run(), Finished), "a debt of less than a burst stops no call that was recorded"
    stage.sql("UPDATE sessions SET log_bytes = log_bytes + :more", more=paced.rate.burst)
    assert isinstance(paced.take(), Denied)
    assert stage.events()[-1].payload["code"] == "LOG_RATE_EXCEEDED"


def test_output_beyond_the_rate_is_left_out_of_the_log_and_is_in_the_artifact(paced, stage):
    whole = b"".join(b"%1024d" % offset for offset in range(0, 64 * KIB, KIB))

    def play(_request, on_output):
        for offset in range(0, len(whole), KIB):
            stage.clock.advance(DELTA_S)
            on_output(Chunk(stream="stdout", offset=offset, data=whole[offset : offset + KIB]))
        return ExecResult(kind=ExitKind.EXITED, exit_code=0, stdout=OutputCount(bytes=len(whole)))

    paced.submit()
    rate = ByteBuckets(ByteRate(per_s=KIB, burst=8 * KIB), stage.clock)
    outcome = paced.run(play, output_rate=rate)
    deltas = [event.payload for event in stage.events() if event.type == "tool.output.delta"]
    for delta in deltas:
        assert whole[delta["offset"] :].startswith(delta["delta"].encode())
    logged = sum(len(delta["delta"]) for delta in deltas)
    assert 7 * KIB <= logged <= 9 * KIB + len(whole) * DELTA_S
    (artifact,) = [stage.artifacts.find(paced.tenant, each) for each in outcome.result.artifacts[:1]]
    assert stage.artifacts.read(artifact) == whole


def test_an_end_is_recorded_though_its_output_is_not(paced, stage):
    paced.submit()
    rate = ByteBuckets(ByteRate(per_s=1, burst=1), stage.clock)
    rate.take(stage.session.id, 100)
    outcome = paced.run(said(b"out"), output_rate=rate)
    assert outcome.result.structured["stdout"] == "out"
    assert stage.types()[-2:] == ["tool.output.completed", "tool.call.completed"]
    assert "tool.output.delta" not in stage.types()
