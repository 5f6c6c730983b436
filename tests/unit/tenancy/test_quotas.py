"""Quotas: what counts, what is refused, and that every end releases exactly what was reserved."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import threading

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from codesdk.api.problems import problem
from codesdk.approvals import Verdict
from codesdk.artifacts import ArtifactUnknown
from codesdk.domain.calls import DenialCode
from codesdk.domain.quotas import QUEUE_RETRY_S, QueueFull, QuotaExceeded, Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import InternalFault
from codesdk.eventlog.log import EVENT_BYTES
from codesdk.hosts import store as host_store
from codesdk.hosts.lease_watch import LeaseWatch
from codesdk.sessions import NewSession, NoHost
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued, Waiting
from stage import Stage

MIB = 1024 * 1024
WRITER = "codesdk.storage.writer"


def used(stage, resource, tenant=None):
    report = stage.quotas.report(stage.database, tenant or stage.principal.tenant_id)
    return next(quota.used for quota in report if quota.resource is resource)


def log_bytes_in_rows(stage):
    """The statement that sums up what `log_bytes` counts."""

    def size(column):
        return f"octet_length({column})" if not stage.database.is_sqlite else f"length(CAST({column} AS BLOB))"

    return (
        f"SELECT (SELECT coalesce(sum({size('body')} + {EVENT_BYTES}), 0) FROM events)"
        f" + (SELECT coalesce(sum({size('input')} + coalesce({size('result')}, 0)), 0) FROM tool_calls)"
        f" + (SELECT coalesce(sum({size('shown')}), 0) FROM approvals)"
    )


def ask(stage, number=0):
    return stage.pipeline.submit("workspace.write", {"path": "a", "content": str(number)}, stage.subject)


def command(stage, number=0, subject=None):
    return stage.pipeline.submit("workspace.exec", {"command": str(number)}, subject or stage.subject)


def end(stage, claimed):
    result = ToolResult(text="done")
    stage.writer.run(
        lambda unit: complete(unit, stage.log, claimed, result, result_ref=None, last_output=(), duration_ms=0.0)
    )


def vote(stage, waiting, verdict):
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    stage.pipeline.vote(asked.tenant_id, asked.id, verdict, digest=asked.digest, by=stage.principal.id, comment=None)


def take(stage, size, least=1):
    return stage.writer.run(
        lambda unit: stage.quotas.reserve_egress(unit, stage.principal.tenant_id, size, least=least)
    )


def give_back(stage, taken):
    stage.writer.run(lambda unit: stage.quotas.give_back(unit, stage.principal.tenant_id, taken))


def reserve(stage, resource, amount=1):
    stage.writer.run(lambda unit: stage.quotas.reserve(unit, stage.principal.tenant_id, resource, amount))


# -- sessions and sandboxes -------------------------------------------------------------------------------------------


def test_one_session_too_many_is_refused_and_nothing_of_it_is_made(stage):
    stage.limit(Resource.SESSIONS, 2)
    stage.open_session()
    before = stage.sql("SELECT count(*) FROM events")
    with pytest.raises(QuotaExceeded, match="sessions is used up: 2 of 2") as refused:
        stage.open_session()
    assert (refused.value.code, refused.value.status, refused.value.retryable) == ("QUOTA_EXCEEDED", 409, False)
    assert refused.value.details == {"resource": "sessions", "used": 2, "limit": 2, "asked": 1}
    assert "codesdk sessions close" in refused.value.advice()
    assert "codesdk tenants quota" in refused.value.advice()
    for table in ("sessions", "session_tokens", "sandboxes"):
        assert stage.sql(f"SELECT count(*) FROM {table}") == [(2,)]
    assert stage.sql("SELECT count(*) FROM events") == before


def test_a_closed_session_makes_room_at_once_and_only_once(stage):
    stage.limit(Resource.SESSIONS, 1)
    for _ in range(2):
        stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    assert used(stage, Resource.SESSIONS) == 0
    stage.open_session()
    with pytest.raises(QuotaExceeded):
        stage.open_session()


def test_a_session_that_could_not_be_opened_takes_nothing(stage):
    stage.sql("UPDATE hosts SET images = '{}'")
    with pytest.raises(NoHost):
        stage.open_session()
    assert (used(stage, Resource.SESSIONS), used(stage, Resource.SANDBOX_MILLICPUS)) == (1, 1000)


def test_another_tenants_sessions_do_not_count(stage):
    stage.limit(Resource.SESSIONS, 1)
    stranger, _ = stage.enroll("other", "eve")
    stage.open_session(stranger)
    stage.open_session(stranger)
    assert used(stage, Resource.SESSIONS) == 1
    with pytest.raises(QuotaExceeded):
        stage.open_session()


@pytest.mark.parametrize(
    ("resource", "limit"),
    [
        (Resource.SANDBOX_MEMORY_BYTES, 1000 * MIB),
        (Resource.SANDBOX_MILLICPUS, 1999),
        (Resource.WORKSPACE_BYTES, 2047 * MIB),
    ],
)
def test_a_session_whose_sandbox_is_too_much_is_refused(stage, resource, limit):
    stage.limit(resource, limit)
    with pytest.raises(QuotaExceeded, match=resource.value.replace("_", " ")):
        stage.open_session()
    assert used(stage, Resource.SESSIONS) == 1


def test_a_closing_sandbox_counts_until_it_is_gone(stage):
    stage.limit(Resource.SANDBOX_MEMORY_BYTES, 512 * MIB)
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    with pytest.raises(QuotaExceeded):
        stage.open_session()
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    stage.open_session()
    assert used(stage, Resource.SANDBOX_MEMORY_BYTES) == 512 * MIB


def test_a_pooled_sandbox_is_nobodys_and_counts_when_it_is_claimed(stage):
    stage.sql(
        "INSERT INTO sandboxes (id, host_id, state, tool_uid, image, profile, generation) SELECT 'sbx_pool', host_id,"
        " 'pooled', 200001, image, profile, 1 FROM sandboxes"
    )
    assert used(stage, Resource.SANDBOX_MILLICPUS) == 1000
    stage.open_session()
    assert stage.sql("SELECT state FROM sandboxes WHERE id = 'sbx_pool'") == [("wanted",)]
    assert used(stage, Resource.SANDBOX_MILLICPUS) == 2000


# -- calls ------------------------------------------------------------------------------------------------------------


def test_one_waiting_call_too_many_is_denied_and_told_when_to_try_again(stage):
    stage.limit(Resource.QUEUED_CALLS, 2)
    assert isinstance(ask(stage, 1), Waiting)
    assert isinstance(command(stage, 2), Queued)
    before = len(stage.types())
    for submit in (ask, command):
        denied = submit(stage, 3)
        assert isinstance(denied, Denied)
        assert (denied.code, denied.retry_after_s) == (DenialCode.QUEUE_FULL, QUEUE_RETRY_S)
        assert "queued calls is used up: 2 of 2" in denied.message
    assert stage.types()[before:] == ["tool.call.requested", "tool.call.policy_evaluated", "tool.call.denied"] * 2
    assert used(stage, Resource.QUEUED_CALLS) == 2
    assert stage.claims().take() is not None
    assert isinstance(command(stage, 4), Queued)


def test_what_refuses_for_a_full_queue_says_so_over_http(stage):
    stage.limit(Resource.QUEUED_CALLS, 1)
    with pytest.raises(QueueFull) as refused:
        stage.writer.run(lambda unit: stage.quotas.reserve(unit, stage.principal.tenant_id, Resource.QUEUED_CALLS, 2))
    answer = problem(refused.value)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "5")
    assert json.loads(answer.body)["code"] == "QUEUE_FULL"


def test_a_call_that_joins_a_waiting_one_needs_no_room(stage):
    stage.limit(Resource.QUEUED_CALLS, 1)
    assert ask(stage) == ask(stage)


def test_a_call_that_policy_denies_outright_is_told_so_however_full_the_queue_is(stage):
    stage.limit(Resource.QUEUED_CALLS, 1)
    ask(stage)
    assert isinstance(stage.pipeline.submit("patch.apply", {"patch": "x"}, stage.subject), Denied)
    assert used(stage, Resource.QUEUED_CALLS) == 1


def rejected(stage):
    vote(stage, ask(stage), Verdict.REJECT)


def expired(stage):
    ask(stage)
    stage.sql("UPDATE approvals SET expires_at = 1")
    stage.expire_overdue()


def cancelled(stage):
    stage.cancel(ask(stage).identity.tool_call_id, "enough")


def approved_and_run(stage):
    vote(stage, ask(stage), Verdict.APPROVE)
    end(stage, stage.claims().take())


def run(stage):
    command(stage)
    end(stage, stage.claims().take())


def voided(stage):
    vote(stage, ask(stage), Verdict.APPROVE)
    stage.sql("UPDATE approvals SET digest = 'sha256:other'")
    assert isinstance(stage.claims().take(), Denied)


def closed(stage):
    ask(stage)
    command(stage)
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)


def barred(stage):
    command(stage)
    stage.sql("UPDATE tenants SET suspended_at = 1")
    assert isinstance(stage.claims().take(), Denied)


@pytest.mark.parametrize(
    "ending",
    [rejected, expired, cancelled, approved_and_run, run, voided, closed, barred],
    ids=lambda each: each.__name__,
)
def test_every_end_of_a_call_gives_back_what_it_took(stage, ending):
    ending(stage)
    assert (used(stage, Resource.QUEUED_CALLS), used(stage, Resource.RUNNING_CALLS)) == (0, 0)


def test_a_call_above_the_running_ones_waits_and_is_not_refused(stage):
    stage.limit(Resource.RUNNING_CALLS, 1)
    other = stage.open_session()
    first = command(stage, 1).identity
    second = command(stage, 2, other).identity
    claimed = stage.claims().take()
    assert claimed.stored.identity == first
    assert stage.claims().take() is None
    assert isinstance(stage.find(second.tool_call_id), Queued)
    end(stage, claimed)
    assert stage.claims().take().stored.identity == second


def test_a_full_tenant_holds_up_no_other(stage):
    stage.limit(Resource.RUNNING_CALLS, 1)
    stranger, _ = stage.enroll("other", "eve")
    theirs = stage.open_session(stranger)
    command(stage, 1)
    command(stage, 2, stage.open_session())
    third = command(stage, 3, theirs).identity
    assert isinstance(stage.claims().take(), ClaimedCall)
    assert stage.claims().take().stored.identity == third
    assert stage.claims().take() is None


# -- keys, bytes, limits ----------------------------------------------------------------------------------------------


def test_keys_count_until_they_are_revoked_or_expire(stage):
    stage.limit(Resource.API_KEYS, 2)
    tenant, holder = stage.principal.tenant_id, stage.principal.id
    mint = lambda ttl_s=None: stage.writer.run(  # noqa: E731
        lambda unit: stage.directory.mint_key(unit, tenant, holder, "k", ttl_s)
    )
    short = mint(3600.0).key
    with pytest.raises(QuotaExceeded, match="api keys"):
        mint()
    stage.sql("UPDATE api_keys SET expires_at = 1 WHERE id = :id", id=short.id)
    mint()
    with pytest.raises(QuotaExceeded):
        mint()
    stage.sql("UPDATE api_keys SET revoked_at = 1")
    assert used(stage, Resource.API_KEYS) == 0


def test_artifact_bytes_are_counted_to_the_byte_and_given_back(stage):
    stage.limit(Resource.ARTIFACT_BYTES, 10)
    reserve(stage, Resource.ARTIFACT_BYTES, 4)
    reserve(stage, Resource.ARTIFACT_BYTES, 6)
    with pytest.raises(QuotaExceeded, match="10 of 10, and 1 more"):
        reserve(stage, Resource.ARTIFACT_BYTES, 1)
    stage.writer.run(lambda unit: stage.quotas.release(unit, stage.principal.tenant_id, Resource.ARTIFACT_BYTES, 3))
    reserve(stage, Resource.ARTIFACT_BYTES, 3)
    assert used(stage, Resource.ARTIFACT_BYTES) == 10


def test_a_unit_that_fails_has_reserved_nothing(stage):
    def work(unit):
        stage.quotas.reserve(unit, stage.principal.tenant_id, Resource.ARTIFACT_BYTES, 5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stage.writer.run(work)
    assert used(stage, Resource.ARTIFACT_BYTES) == 0


def test_more_bytes_than_there_are_cannot_be_given_back(stage):
    reserve(stage, Resource.ARTIFACT_BYTES, 5)
    with pytest.raises(InternalFault):
        stage.writer.run(lambda unit: stage.quotas.release(unit, stage.principal.tenant_id, Resource.ARTIFACT_BYTES, 6))
    assert used(stage, Resource.ARTIFACT_BYTES) == 5


def test_a_limit_of_its_own_wins_over_the_installations_and_can_be_taken_back(stage):
    quotas = stage.quotas = TenantQuotas({Resource.SESSIONS: 1})
    tenant = stage.principal.tenant_id

    def sessions():
        return next(quota for quota in quotas.report(stage.database, tenant) if quota.resource is Resource.SESSIONS)

    assert (sessions().limit, sessions().own) == (1, False)
    stage.limit(Resource.SESSIONS, 0)
    assert (sessions().limit, sessions().own) == (0, True)
    reserve(stage, Resource.SESSIONS, 100)
    stage.limit(Resource.SESSIONS, None)
    assert (sessions().limit, sessions().own) == (1, False)
    with pytest.raises(QuotaExceeded):
        reserve(stage, Resource.SESSIONS)


def test_a_limit_below_what_is_used_takes_nothing_away(stage):
    stage.open_session()
    stage.limit(Resource.SESSIONS, 1)
    assert len(stage.sessions.list_all_open()) == 2
    with pytest.raises(QuotaExceeded, match="2 of 1"):
        stage.open_session()


def test_limits_of_one_resource_leave_the_others(stage):
    stage.limit(Resource.SESSIONS, 7)
    stage.limit(Resource.API_KEYS, 8)
    own = {q.resource: q.limit for q in stage.quotas.report(stage.database, stage.principal.tenant_id) if q.own}
    assert own == {Resource.SESSIONS: 7, Resource.API_KEYS: 8}


# -- many at once -----------------------------------------------------------------------------------------------------


def written_by(service, writer):
    """The same service in that writer's process."""
    made = copy.copy(service)
    made._writer = writer
    return made


def open_one(stage, unit):
    stage.sessions._open(unit, stage.principal, NewSession(), stage.profile, None)


def mint_one(stage, unit):
    stage.directory.mint_key(unit, stage.principal.tenant_id, stage.principal.id, "k")


def kept(stage, desk, content):
    return desk.put(content, stage.principal.tenant_id, None, content_type="a/b", name="n")


@pytest.mark.parametrize(
    ("resource", "make"),
    [(Resource.SESSIONS, open_one), (Resource.API_KEYS, mint_one)],
    ids=["sessions", "api_keys"],
)
def test_however_many_ask_at_once_exactly_as_many_as_may_get_it(stage, writers, at_once, resource, make):
    stage.limit(resource, 9)
    free = 9 - used(stage, resource)

    def one(number):
        try:
            writers[number % len(writers)].run(lambda unit: make(stage, unit))
        except QuotaExceeded:
            return False
        return True

    assert sum(at_once(one, 40)) == free
    assert used(stage, resource) == 9


def test_artifacts_that_are_kept_and_removed_at_once_are_counted_once_and_never_too_many(stage, writers, at_once):
    """Through desks of several processes, with few contents: records of one blob, and removals that meet."""
    stage.limit(Resource.ARTIFACT_BYTES, 40)
    writers = writers[:2]
    desks = [stage.artifacts_with(stage.quotas, writer=writer) for writer in writers]
    contents = (b"x" * 3, b"y" * 5)

    ready = [[kept(stage, stage.artifacts, contents[(number + turn) % 2]) for turn in range(3)] for number in range(4)]
    last = [kept(stage, stage.artifacts, contents[1]) for _ in range(16)]

    def one(number):
        """How often it was refused."""
        desk, writer = desks[number % len(desks)], writers[number % len(writers)]
        refused = 0
        for turn in range(3):
            made = ready[number][turn]
            try:
                writer.run(lambda unit, made=made: desk.record(unit, made))
            except QuotaExceeded:
                refused += 1
            assert used(stage, Resource.ARTIFACT_BYTES) <= 40
            for found in desk.listing(stage.principal.tenant_id, limit=2):
                with contextlib.suppress(ArtifactUnknown):  # somebody else removes it too
                    desk.delete(found.tenant_id, found.id)
        return refused

    sizes = "SELECT coalesce(sum(size), 0) FROM artifacts"
    at_once(one, 4)
    assert [(used(stage, Resource.ARTIFACT_BYTES),)] == stage.sql(sizes)

    def fill(number):
        desk, writer = desks[number % len(desks)], writers[number % len(writers)]
        try:
            writer.run(lambda unit: desk.record(unit, last[number]))
        except QuotaExceeded:
            return False
        return True

    room = 40 - used(stage, Resource.ARTIFACT_BYTES)
    assert sum(at_once(fill, 16)) == room // 5
    assert [(used(stage, Resource.ARTIFACT_BYTES),)] == stage.sql(sizes)


class Meeting(TenantQuotas):
    """Whoever has reserved waits until somebody else is about to release, for a second at most."""

    def __init__(self):
        super().__init__({})
        self.reserved, self.releases = threading.Event(), threading.Event()

    def reserve(self, *asked, **more):
        super().reserve(*asked, **more)
        self.reserved.set()
        self.releases.wait(1)

    def release(self, *given):
        self.releases.set()
        super().release(*given)


def test_a_record_and_a_removal_of_the_same_bytes_do_not_undo_each_other(stage, writers, caplog):
    """Each needs the tenant's row and the blob's: in one order, or the database has to end one of them."""
    caplog.set_level(logging.INFO, logger=WRITER)
    old = kept(stage, stage.artifacts, b"same")
    stage.writer.run(lambda unit: stage.artifacts.record(unit, old))
    meeting = Meeting()
    desks = [stage.artifacts_with(meeting, writer=writer) for writer in writers[:2]]
    new = kept(stage, desks[0], b"same")
    recording = threading.Thread(target=writers[0].run, args=(lambda unit: desks[0].record(unit, new),))
    recording.start()
    assert meeting.reserved.wait(10)
    desks[1].delete(old.tenant_id, old.id)
    recording.join(10)
    assert used(stage, Resource.ARTIFACT_BYTES) == 4
    assert [record.getMessage() for record in caplog.records if record.name == WRITER] == []


def test_workers_that_claim_at_once_run_exactly_as_many_as_may(stage, writers, at_once):
    stage.limit(Resource.RUNNING_CALLS, 3)
    for number in range(12):
        command(stage, number, stage.open_session())
    claims = [written_by(stage.claims(), writer) for writer in writers]
    taken = at_once(lambda number: claims[number % len(claims)].take(), 12)
    assert sum(isinstance(each, ClaimedCall) for each in taken) == 3
    assert used(stage, Resource.RUNNING_CALLS) == 3


def test_callers_of_several_processes_queue_exactly_as_many_calls_as_may_wait(stage, writers, at_once):
    stage.limit(Resource.QUEUED_CALLS, 5)
    pipelines = [written_by(stage.pipeline, writer) for writer in writers]
    subjects = [stage.open_session() for _ in range(12)]

    def one(number):
        given = {"command": str(number)}
        return pipelines[number % len(pipelines)].submit("workspace.exec", given, subjects[number])

    assert sum(isinstance(each, Queued) for each in at_once(one, 12)) == 5
    assert used(stage, Resource.QUEUED_CALLS) == 5


# -- whatever happens in whatever order -------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """A tenant under small limits: after every step, what is counted is what the rows say, and within the limit."""

    stage: Stage
    limits = {
        Resource.SESSIONS: 3,
        Resource.QUEUED_CALLS: 4,
        Resource.RUNNING_CALLS: 2,
        Resource.API_KEYS: 3,
        Resource.LOG_BYTES: 1 << 30,
        Resource.ARTIFACT_BYTES: 20,
        Resource.SANDBOX_MEMORY_BYTES: 4 * 512 * MIB,
        Resource.SANDBOX_MILLICPUS: 5000,
        Resource.WORKSPACE_BYTES: 4 * 1024 * MIB,
        Resource.EGRESS_BYTES_A_DAY: 100,
    }

    def __init__(self):
        super().__init__()
        stage = self.stage
        for table in (
            "approval_news",
            "approval_votes",
            "approvals",
            "tool_calls",
            "session_tokens",
            "artifacts",
            "events",
            "sandboxes",
            "sessions",
        ):
            stage.sql(f"DELETE FROM {table}")
        stage.sql("UPDATE api_keys SET revoked_at = 1 WHERE revoked_at IS NULL")
        stage.sql("UPDATE tenants SET artifact_bytes = 0, egress_bytes = 0, suspended_at = NULL")
        stage.sql("UPDATE hosts SET state = 'active', generation = 1")
        for resource, amount in self.limits.items():
            stage.limit(resource, amount)
        self.subjects = []
        self.running = []
        self.waiting = []
        self.kept = []
        self.keys = []
        self.refusals = []
        self.count = 0
        self.taken = 0
        self.connections = []

    def attempt(self, work):
        try:
            return work()
        except QuotaExceeded as full:
            self.refusals.append(full.details)
            return None

    def next(self):
        self.count += 1
        return self.count

    @rule()
    def opens(self):
        if (subject := self.attempt(self.stage.open_session)) is not None:
            self.subjects.append(subject)

    @rule(data=st.data())
    @precondition(lambda self: self.subjects)
    def closes(self, data):
        subject = data.draw(st.sampled_from(self.subjects))
        self.stage.sessions.close(subject.tenant_id, subject.session_id)

    @rule(size=st.integers(1, 60), least=st.integers(1, 20))
    def takes_bytes_ahead(self, size, least):
        left = self.limits[Resource.EGRESS_BYTES_A_DAY] - self.taken
        taken = self.attempt(lambda: take(self.stage, size, least))
        assert (taken is None) == (left < least)
        if taken is not None:
            assert least <= taken.amount <= max(size, least)
            self.taken += taken.amount
            self.connections.append(taken)

    @rule(data=st.data())
    @precondition(lambda self: self.connections)
    def gives_back_what_did_not_move(self, data):
        taken = self.connections.pop()
        rest = taken._replace(amount=data.draw(st.integers(0, taken.amount)))
        give_back(self.stage, rest)
        self.taken -= rest.amount

    @rule()
    def the_host_is_lost_and_comes_back(self):
        stage = self.stage
        with stage.database.read() as connection:
            host = host_store.find(connection, "local")
        stage.writer.run(lambda unit: host_store.mark_lost(unit.connection, host.id, generation=host.generation))
        watch = LeaseWatch(stage.database, stage.writer, stage.clock, 0.0)
        LostHosts(
            watch=watch, sessions=stage.sessions, database=stage.database, writer=stage.writer, log=stage.log
        ).tend()
        assert stage.sql("SELECT count(*) FROM sandboxes WHERE state <> 'gone'") == [(0,)]
        assert stage.sql("SELECT count(*) FROM tool_calls WHERE finished_at IS NULL") == [(0,)]
        stage.sql("UPDATE hosts SET state = 'active', generation = 1")  # as a stage's claims have it
        self.running.clear()

    @rule()
    def sandboxes_go(self):
        self.stage.sql("UPDATE sandboxes SET state = 'gone' WHERE state = 'closing'")

    @rule(data=st.data())
    @precondition(lambda self: self.subjects)
    def asks(self, data):
        given = {"path": "a", "content": str(self.next())}
        subject = data.draw(st.sampled_from(self.subjects))
        outcome = self.attempt(lambda: self.stage.pipeline.submit("workspace.write", given, subject))
        if isinstance(outcome, Waiting):
            self.waiting.append(outcome)

    @rule(data=st.data())
    @precondition(lambda self: self.subjects)
    def submits(self, data):
        subject = data.draw(st.sampled_from(self.subjects))
        self.attempt(lambda: command(self.stage, self.next(), subject))

    @rule(data=st.data())
    @precondition(lambda self: self.subjects)
    def is_denied(self, data):
        subject = data.draw(st.sampled_from(self.subjects))
        self.stage.pipeline.submit("patch.apply", {"patch": str(self.next())}, subject)

    @rule(approve=st.booleans())
    @precondition(lambda self: self.stage.pending())
    def votes(self, approve):
        asked = self.stage.pending()[-1]
        verdict = Verdict.APPROVE if approve else Verdict.REJECT
        by = self.stage.principal.id
        self.stage.pipeline.vote(asked.tenant_id, asked.id, verdict, digest=asked.digest, by=by, comment=None)

    @rule()
    def time_runs_out(self):
        self.stage.sql("UPDATE approvals SET expires_at = 1 WHERE state = 'pending'")
        self.stage.expire_overdue()

    @rule(data=st.data())
    @precondition(lambda self: self.waiting)
    def cancels(self, data):
        call = data.draw(st.sampled_from(self.waiting)).identity.tool_call_id
        self.stage.cancel(call, "enough")

    @rule()
    def claims(self):
        taken = self.stage.claims().take()
        if isinstance(taken, ClaimedCall):
            self.running.append(taken)

    @rule()
    @precondition(lambda self: self.running)
    def ends(self):
        end(self.stage, self.running.pop())

    @rule()
    def mints(self):
        made = self.attempt(lambda: self.stage.writer.run(self._mint))
        if made is not None:
            self.keys.append(made.key)

    def _mint(self, unit):
        return self.stage.directory.mint_key(unit, self.stage.principal.tenant_id, self.stage.principal.id, "k")

    @rule(data=st.data())
    @precondition(lambda self: self.keys)
    def revokes(self, data):
        key = data.draw(st.sampled_from(self.keys))
        self.stage.sql("UPDATE api_keys SET revoked_at = 2 WHERE id = :id AND revoked_at IS NULL", id=key.id)

    @rule(size=st.integers(0, 12), fails=st.booleans())
    def keeps(self, size, fails):
        made = kept(self.stage, self.stage.artifacts, bytes(size))

        def work(unit):
            self.stage.artifacts.record(unit, made)
            if fails:
                raise ZeroDivisionError

        try:
            self.stage.writer.run(work)
        except (QuotaExceeded, ZeroDivisionError):
            return
        self.kept.append(made)

    @rule()
    @precondition(lambda self: self.kept)
    def removes(self):
        made = self.kept.pop()
        self.stage.artifacts.delete(made.tenant_id, made.id)

    @invariant()
    def none_is_refused_without_need(self):
        for each in self.refusals:
            assert each["used"] + each["asked"] > each["limit"]

    @invariant()
    def the_count_is_what_the_rows_say_and_within_the_limit(self):
        rows = {
            Resource.SESSIONS: "SELECT count(*) FROM sessions WHERE state = 'open'",
            Resource.QUEUED_CALLS: "SELECT count(*) FROM tool_calls WHERE state LIKE 'waiting%' OR state = 'queued'",
            Resource.RUNNING_CALLS: "SELECT count(*) FROM tool_calls WHERE state LIKE 'running%'",
            Resource.API_KEYS: "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL",
            Resource.ARTIFACT_BYTES: "SELECT coalesce(sum(size), 0) FROM artifacts",
            Resource.LOG_BYTES: log_bytes_in_rows(self.stage),
            Resource.SANDBOX_MEMORY_BYTES: "SELECT count(*) * 512 * 1048576 FROM sandboxes WHERE state <> 'gone'",
            Resource.SANDBOX_MILLICPUS: "SELECT count(*) * 1000 FROM sandboxes WHERE state <> 'gone'",
            Resource.WORKSPACE_BYTES: "SELECT count(*) * 1024 * 1048576 FROM sandboxes WHERE state <> 'gone'",
            Resource.EGRESS_BYTES_A_DAY: f"SELECT {self.taken}",
        }
        for quota in self.stage.quotas.report(self.stage.database, self.stage.principal.tenant_id):
            assert [(quota.used,)] == self.stage.sql(rows[quota.resource])
            assert quota.limit == self.limits[quota.resource]
            assert quota.used <= quota.limit


def test_after_any_steps_the_count_is_what_the_rows_say_and_within_the_limit(stage):
    kind = type("OnThisStage", (Life,), {"stage": stage})
    chosen = settings(
        max_examples=20,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    run_state_machine_as_test(kind, settings=chosen)


# -- bytes of egress --------------------------------------------------------------------------------------------------


def test_who_takes_bytes_ahead_gets_an_eighth_of_what_is_left_and_at_least_what_it_needs(stage):
    stage.limit(Resource.EGRESS_BYTES_A_DAY, 800)
    assert [take(stage, 1000, least).amount for least in (1, 1, 300, 312)] == [100, 87, 300, 312]
    with pytest.raises(QuotaExceeded, match="799 of 800, and 2 more") as refused:
        take(stage, 1000, 2)
    assert "midnight" in refused.value.advice()
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == 799


def test_without_a_limit_all_that_is_asked_for_is_taken_and_counted(stage):
    assert take(stage, 1 << 40).amount == 1 << 40
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == 1 << 40


def test_the_bytes_of_a_day_are_forgotten_on_the_next_and_do_not_come_back_to_it(stage):
    stage.limit(Resource.EGRESS_BYTES_A_DAY, 100)
    yesterday = take(stage, 1, 70)
    with pytest.raises(QuotaExceeded):
        take(stage, 1, 31)
    stage.sql("UPDATE tenants SET egress_day = egress_day - 1")
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == 0
    today = take(stage, 1, 50)
    give_back(stage, yesterday._replace(day=yesterday.day - 1))
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == 50
    give_back(stage, today)
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == 0


def test_however_many_take_bytes_at_once_they_get_no_more_than_the_day_has(stage, writers, at_once):
    stage.limit(Resource.EGRESS_BYTES_A_DAY, 1000)
    tenant = stage.principal.tenant_id

    def one(number):
        """What a connection moves in the end, of what it took."""
        writer = writers[number % len(writers)]
        try:
            taken = writer.run(lambda unit: stage.quotas.reserve_egress(unit, tenant, 200, least=40))
        except QuotaExceeded:
            return 0
        writer.run(lambda unit: stage.quotas.give_back(unit, tenant, taken._replace(amount=taken.amount - 40)))
        return 40

    moved = sum(at_once(one, 40))
    assert used(stage, Resource.EGRESS_BYTES_A_DAY) == moved <= 1000
    assert moved >= 400
