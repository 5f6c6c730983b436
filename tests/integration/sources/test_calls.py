"""Calls of an accepted server pass the same steps as any call: policy, approval, events, the worker."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from codesdk.approvals import Verdict
from codesdk.bootstrap import Services
from codesdk.domain.calls import CallState, DenialCode
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.mcphost.listings.tool_list import list_tools
from codesdk.registry import ToolWithheld
from codesdk.sandbox.local.driver import LocalSandboxes
from codesdk.sandbox.port import ExecutionEnvironment
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.sources.servers.server import Server
from codesdk.storage.faults import DatabaseGone
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.claim import InFlightCalls
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Finished, Queued, Waiting
from codesdk.toolcalls.run import acquire
from codesdk.worker.calls.recovery import Recovery
from codesdk.worker.lifecycle.worker import Worker
from local_sandboxes import plain
from source_stage import until
from stage import bundle, stored_call

POLICY = """\
version: 1
name: sources
default: deny
rules:
  - {id: reads, effect: allow, classification: read-only}
  - {id: talks, effect: allow, tool: [fx.echo, fx.slow, fx.pid, fx.cancelled, fx.lie, fx.bare, fx.change]}
  - {id: asks, effect: ask, tool: fx.refuse, approval: {preview: true}}
  - {id: secret, effect: allow, tool: fx.image, obligations: {redactions: [{literal: inside}]}}
"""


class Line:
    """A pipeline and a worker's half over one stage."""

    def __init__(self, own):
        self.own = own
        self.stage = own.stage
        self.bundle = bundle(own.stage.root / "fx-policies", POLICY, own.registry.shared)
        self.pipeline = own.stage.pipeline_with(self.bundle, own.registry)
        self.claims = own.stage.claims(self.bundle, own.registry)
        self.execution = Execution(
            registry=own.registry,
            log=own.stage.log,
            artifacts=own.stage.artifacts,
            writer=own.stage.writer,
            clock=own.clock,
            lost_attempts=own.stage.lost_attempts(self.bundle, own.registry),
            sources=own.desk,
        )

    def submit(self, name, **given):
        return self.pipeline.submit(name, given, self.stage.subject)

    def run(self):
        claimed = self.claims.take()
        assert isinstance(claimed, ClaimedCall), claimed
        return self.execution.run(claimed, self.no_sandbox)

    def no_sandbox(self):
        raise AssertionError("a call of a server needs no sandbox of the session's")


@pytest.fixture
def line(own):
    return Line(own)


def test_an_allowed_call_is_recorded_from_the_request_to_the_result(line):
    outcome = line.submit("fx_add", a=1, b=2)
    assert isinstance(outcome, Queued)
    assert line.run().structured == {"sum": 3}
    assert line.stage.types() == [
        "tool.call.requested",
        "tool.call.policy_evaluated",
        "tool.call.approved",
        "tool.call.started",
        "tool.call.completed",
    ]
    assert isinstance(line.stage.find(outcome.identity.tool_call_id), Finished)


def test_a_call_whose_server_does_not_start_uses_up_no_grant(line):
    """Nothing ran, as where a sandbox could not be opened."""
    line.own.write(argv=["no-such-mcp-server"], tools={"add": {"classification": "read-only"}})
    line.own.registry.refresh()
    line.submit("fx.add", a=1, b=2)
    claimed = line.claims.take()
    kept = []
    line.execution._end = lambda claimed, *_, **__: kept.append(claimed.ran)
    assert line.execution.run(claimed, line.no_sandbox).code == "SOURCE_UNAVAILABLE"
    assert kept == [False]
    del line.execution._end
    line.execution.run(claimed, line.no_sandbox)


class Away:
    """The question whether the host is still this worker's, while the database is away for some of its times."""

    def __init__(self, line, monkeypatch, times=2, meanwhile=lambda: None):
        monkeypatch.setattr(acquire, "RETRY_S", 0.001)
        monkeypatch.setattr(line.execution, "_confirm", self)
        self.asked = 0
        self._line, self._times, self._meanwhile = line, times, meanwhile

    def __call__(self):
        self.asked += 1
        if self.asked <= self._times:
            self._line.own.clock.ahead += 1.0
            self._meanwhile()
            raise DatabaseGone("away")


def test_a_call_waits_for_a_database_that_is_away_before_its_server_gets_it(line, monkeypatch):
    away = Away(line, monkeypatch)
    line.submit("fx_add", a=1, b=2)
    assert line.run().structured == {"sum": 3}
    assert away.asked == 3


def test_its_server_gets_nothing_where_it_was_cancelled_meanwhile(line, monkeypatch):
    line.own.call("add", a=0, b=0)  # the server runs
    queued = line.submit("fx_add", a=1, b=2)
    cancel = lambda: line.pipeline.cancel(  # noqa: E731
        line.stage.subject.tenant_id, line.stage.session.id, queued.identity.tool_call_id, "enough"
    )
    Away(line, monkeypatch, times=1, meanwhile=cancel)
    monkeypatch.setattr(Server, "call", lambda *_: pytest.fail("it was sent"))
    result = line.run()
    assert (result.code, result.text) == ("NOT_BEGUN", "This call was not begun: meanwhile it was cancelled.")


def test_nor_where_it_was_withdrawn_from_the_server_meanwhile(line, monkeypatch):
    line.own.call("add", a=0, b=0)
    queued = line.submit("fx_add", a=1, b=2)
    Away(line, monkeypatch, times=1, meanwhile=lambda: line.own.desk.cancel(queued.identity))
    monkeypatch.setattr(Server, "call", lambda *_: pytest.fail("it was sent"))
    assert line.run().code == "CANCELLED"


def test_it_is_the_next_workers_where_this_one_lets_go_meanwhile(line, monkeypatch):
    Away(line, monkeypatch, times=99, meanwhile=line.execution.abandon)
    line.submit("fx_add", a=1, b=2)
    with pytest.raises(DatabaseGone):
        line.run()
    assert line.stage.types()[-1] == "tool.call.started"


def test_progress_is_in_the_log_as_output(line):
    line.submit("fx.slow", steps=8)
    assert line.run().text == "done"
    assert "tool.output.delta" in line.stage.types()
    deltas = [event.payload["delta"] for event in line.stage.events() if event.type == "tool.output.delta"]
    assert "step 1" in "".join(deltas)


def test_a_call_that_policy_denies_starts_no_server(line):
    assert isinstance(line.submit("fx.die"), Denied)
    assert line.own.owners() == []


def test_a_call_that_policy_asks_about_waits_for_a_person(line):
    waiting = line.submit("fx.refuse")
    assert isinstance(waiting, Waiting)
    asked = line.stage.approval_service.find(line.stage.subject.tenant_id, waiting.approval_id)
    line.pipeline.vote(
        asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=line.stage.principal.id, comment=None
    )
    assert line.run().code == "SOURCE_ERROR"


def test_what_policy_redacts_is_in_no_answer_of_a_server(line):
    line.submit("fx.image")
    assert "inside" not in line.run().text


@pytest.mark.parametrize("name", ["fx.lie", "fx.bare"])
def test_a_structured_answer_that_breaks_the_accepted_schema_is_an_error(line, name):
    line.submit(name)
    result = line.run()
    assert (result.is_error, result.code) == (True, "INVALID_TOOL_OUTPUT")


def test_a_changed_tool_is_neither_listed_nor_called_and_a_queued_call_is_voided(line):
    queued = line.submit("fx.echo", text="before")
    registry = line.own.registry
    names = {tool.name for tool in list_tools(registry.shared, line.bundle, line.stage.subject)}
    assert {"fx_echo", "fx_add"} <= names
    line.own.call("change")
    until(lambda: registry.refresh() or registry.shared.resolve("fx.echo").withheld, "it is taken away")
    names = {tool.name for tool in list_tools(registry.shared, line.bundle, line.stage.subject)}
    assert ("fx_echo" in names, "fx_add" in names) == (False, True)
    with pytest.raises(ToolWithheld, match="codesdk tools diff fx"):
        line.submit("fx.echo", text="after")
    assert isinstance(line.claims.take(), Denied)
    assert line.stage.find(queued.identity.tool_call_id).code is DenialCode.VOIDED


def test_of_a_worker_that_died_a_reading_call_is_made_once_more_and_any_other_is_lost(line):
    reading, other = line.submit("fx.add", a=1, b=2), line.submit("fx.echo", text="x")
    assert all(isinstance(line.claims.take(), ClaimedCall) for _ in range(2))

    def no_room(_session):
        raise AssertionError("a call of a server needs no sandbox of the session's")

    recovery = Recovery(
        host=line.stage.host,
        sandbox_registry=SimpleNamespace(execution_environment=ExecutionEnvironment(), ready=no_room),
        registry=line.own.registry,
        execution=line.execution,
        in_flight=InFlightCalls(),
        database=line.stage.database,
        writer=line.stage.writer,
    )
    assert recovery.take_up() == 2
    assert line.run().structured == {"sum": 3}
    assert line.stage.find(reading.identity.tool_call_id).result.structured == {"sum": 3}
    assert line.stage.find(other.identity.tool_call_id).result.code == "WORKER_LOST"


def test_the_same_call_asks_after_its_server_did_not_answer_in_time(line):
    silent = line.submit("fx.slow", steps=400).identity.tool_call_id
    claimed = line.claims.take().model_copy(update={"timeout_s": 0.5})
    result = line.execution.run(claimed, line.no_sandbox)
    assert (result.code, result.is_error) == ("TIMEOUT", True)
    assert "Whether it took effect is unknown" in result.text
    asked = line.submit("fx.slow", steps=400)
    assert isinstance(asked, Waiting)
    assert silent in asked.reason
    assert isinstance(line.submit("fx.slow", steps=2), Queued)


class Site:
    """A whole worker process's services, over local sandboxes; no Redis: the poll finds the calls."""

    def __init__(self, root, own):
        policies = root / "site-policies"
        policies.mkdir()
        (policies / "policy.yaml").write_text(POLICY)
        tools = own.tools
        self.settings = Settings(
            data_dir=root / "site", registry_dir=tools, policies_dir=policies, poll_s=0.1, worker_threads=4, warm_pool=0
        )
        self.settings.prepare_data_dir()
        self.sandboxes = LocalSandboxes(self.settings.instance_id(), root / "site" / "local", plain())
        self.services = Services(self.settings, hints=LocalHints(), wakeups=LocalWakeups())
        principal, _ = self.services.writer.run(
            lambda unit: self.services.directory.enroll(unit, "default", "dev", (Role.DEVELOPER,))
        )
        self._worker = Worker(self.services, self.sandboxes, {"base": self.sandboxes.image})
        self._worker.start()
        _, token = self.services.sessions.open(principal, NewSession())
        self.subject = self.services.directory.subject(token)

    def ended(self, call):
        def end():
            found = self.services.pipeline.find(self.subject.tenant_id, self.subject.session_id, call)
            return found if isinstance(found, Finished | Denied) else None

        return until(end, f"{call} to end")

    def state(self, call):
        return stored_call(self.services.database, call).state

    def close(self):
        self._worker.stop()
        self.services.close()
        self.sandboxes.sweep(())
        self.sandboxes.close()


@pytest.fixture
def site(tmp_path, own):
    made = Site(tmp_path, own)
    yield made
    made.close()


def test_a_whole_worker_runs_cancels_and_stops_servers(site):
    submit = site.services.pipeline.submit
    first = submit("fx.echo", {"text": "hello"}, site.subject).identity.tool_call_id
    assert site.ended(first).result.text == "hello"
    slow = submit("fx.slow", {}, site.subject).identity.tool_call_id
    until(lambda: site.state(slow) is CallState.RUNNING, "the call to run")
    assert site.services.pipeline.cancel(site.subject.tenant_id, site.subject.session_id, slow, "no more")
    assert site.ended(slow).result.code == "CANCELLED"

    def told():
        asked = submit("fx.cancelled", {}, site.subject).identity.tool_call_id
        return json.loads(site.ended(asked).result.text) == 1

    until(told, "the server was told of the cancel")
    site.services.sessions.close(site.subject.tenant_id, site.subject.session_id)

    def gone():
        with site.services.database.read() as connection:
            return not sandbox_store.of_sources(connection, site._worker.host.id)

    until(gone, "the server ended with its session")
