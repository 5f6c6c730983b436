"""A whole core in a temporary directory: database, writer, log, one tenant, one host, open sessions; no Redis, no
engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import text

from codesdk.approvals import Approval, ApprovalService
from codesdk.artifacts import ArtifactService
from codesdk.artifacts.blobs import Blobs
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.service import UNRECORDED_TTL_S
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.byte_rate import ByteBuckets
from codesdk.domain.clock import ManualClock
from codesdk.domain.events import Event
from codesdk.domain.ids import CountingIds, SessionId, ToolCallId
from codesdk.domain.invariants import first_violation
from codesdk.domain.quotas import Quotas, Resource
from codesdk.domain.subjects import Subject
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.jobs import LocalWakeups
from codesdk.policy import Bundle, load_bundle
from codesdk.policy.rollout.active_bundles import with_session_rules
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.registry import Registry, RegistryProvider
from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.port import (
    Attestation,
    Chunk,
    ExecRequest,
    ExecResult,
    ExitKind,
    FileFingerprint,
    FingerprintKind,
    OnOutput,
    OutputCount,
)
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sessions import NewSession, SessionService
from codesdk.storage.database import Database, database_now
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Principal, Reach, Role
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.toolcalls.approval.bound_files import named_files
from codesdk.toolcalls.approval.deferred import DeferredApprovals
from codesdk.toolcalls.approval.flow import ApprovalFlow
from codesdk.toolcalls.claim import CallClaimer, InFlightCalls
from codesdk.toolcalls.decision.call_decision import NO_APPROVAL_LIMITS, ApprovalLimits, CallDecisions
from codesdk.toolcalls.decision.log_limits import LogLimits
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records import store as call_store
from codesdk.toolcalls.records.call_record import Outcome
from codesdk.toolcalls.retries.lost_calls import LostAttempts
from codesdk.toolcalls.run.output_log import FlushTimer
from codesdk.worker.ownership.registration import OwnedHost, register

REPOSITORY = Path(__file__).resolve().parent.parent
DEADLINE_S = 45.0
START_S = 120.0
"""Seconds that a process of the product may take to start: several of CPU, on a machine that others use as well."""

POLICY = """\
version: 1
name: stage
default: deny
enable: [workspace.exec]
rules:
  - {id: reads, effect: allow, classification: read-only}
  - {id: writes, effect: ask, tool: workspace.write, approval: {timeout: 10m}}
  - {id: patches, effect: deny, tool: patch.apply, reason: No patches here.}
  - {id: commands, effect: allow, tool: workspace.exec}
"""
"""Reads and commands run, writes ask, patches are denied."""

LIMITS = dict.fromkeys(Resource, 0)
"""None, until a test sets one."""


def bundle(directory: Path, policy: str, registry: Registry) -> Bundle:
    """A bundle of one file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "policy.yaml").write_text(policy)
    return load_bundle(directory, [tool.name for tool in registry.tools()])


class FixedBundle:
    """One unchanging bundle for all tenants."""

    def __init__(self, chosen: Bundle, sessions: SessionRules | None = None) -> None:
        self._bundle = chosen
        self._sessions = sessions

    def of(self, tenant: str, session_rules: str | None = None) -> Bundle:
        """The bundle, merged with the session's own rules."""
        del tenant
        return with_session_rules(self._bundle, self._sessions, session_rules)


class LookingPipeline(Pipeline):
    """A pipeline whose worker looks at once: an empty workspace, so that no file that a call names is there."""

    looks = True

    def submit(self, *given: Any, **more: Any) -> Outcome:
        outcome = super().submit(*given, **more)
        stored = stored_call(self._log.database, outcome.identity.tool_call_id)
        if not self.looks or stored is None or stored.preparing is None:
            return outcome
        names = named_files(self._registry.of(stored.tenant_id).resolve(stored.call.name), stored.call.input)
        absent = tuple(FileFingerprint(**name.model_dump(), kind=FingerprintKind.ABSENT) for name in names)
        self._deferred.put(stored.identity.tool_call_id, absent)
        found = self.find(stored.tenant_id, stored.subject.session_id, stored.identity.tool_call_id)
        assert found is not None
        return found


@cache
def shipped() -> Registry:
    """The tools of the repository: a value that does not change, and takes a tenth of a second to read."""
    return Registry.load(REPOSITORY / "tool-registry")


class Stage:
    """Everything between an MCP call and a sandbox, in one process."""

    def __init__(
        self,
        root: Path,
        url: str,
        policy: str = POLICY,
        *,
        registry: Registry | None = None,
        writer: Callable[[Database], Writer] | None = None,
    ) -> None:
        """`url`: of a migrated database without rows. `registry`: one that is read already; `writer`: makes another's."""
        self.root = root
        self.url = url
        self.tampered = False
        """A test changed rows behind the product's back: its logs need not be lawful."""
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.database = Database(url)
        lock = root / "write.lock" if self.database.is_sqlite else None
        self.writer = writer(self.database) if writer else Writer(self.database, lock)
        self.hints = LocalHints()
        self.log = EventLog(self.database, self.clock, self.hints)
        self.blobs = DirectoryBlobs(root / "artifacts")
        self.incoming = SpoolDirectory(root / "artifacts" / "incoming", 1024**3)
        self.approval_service = ApprovalService(self.database, self.ids)
        self.quotas = TenantQuotas(LIMITS)
        self.artifacts = self.artifacts_with(self.quotas)
        self.directory = IdentityDirectory(self.database, self.clock, self.ids, quotas=self.quotas, writer=self.writer)
        self.administration = Administration(
            database=self.database,
            writer=self.writer,
            directory=self.directory,
            quotas=self.quotas,
            clock=self.clock,
            ids=self.ids,
        )
        self.wakeups = LocalWakeups()
        self.registry = registry or shipped()
        self.bundle = bundle(root / "policies", policy, self.registry)
        self.profile = Profile()
        self.rules = SessionRules(self.database, [tool.name for tool in self.registry.tools()])
        self.principal, self.api_key = self.enroll("default", "dev", Role.DEVELOPER, Role.APPROVER)
        self.host = self.register()
        self.sessions = self.sessions_with(self.writer)
        self.pipeline = self.pipeline_with(self.bundle)
        self.session, self.token = self.sessions.open(self.principal, NewSession())
        self.subject = self.subject_of(self.token)

    def sessions_with(self, writer: Writer) -> SessionService:
        """The sessions as another process would open them."""
        return SessionService(
            database=self.database,
            writer=writer,
            log=self.log,
            artifacts=self.artifacts,
            directory=self.directory,
            quotas=self.quotas,
            wakeups=self.wakeups,
            clock=self.clock,
            ids=self.ids,
            profiles=Profiles({"default": self.profile}),
            rules=self.rules,
            token_ttl_s=3600.0,
        )

    def artifacts_with(
        self,
        quotas: Quotas[Unit],
        blobs: Blobs | None = None,
        hold_s: float = UNRECORDED_TTL_S,
        writer: Writer | None = None,
    ) -> ArtifactService:
        """Artifacts under other quotas, over another store, or of another process, as far as its writer can tell."""
        return ArtifactService(
            blobs=blobs or self.blobs,
            incoming=self.incoming,
            database=self.database,
            writer=writer or self.writer,
            clock=self.clock,
            ids=self.ids,
            quotas=quotas,
            hold_s=hold_s,
        )

    def close(self) -> None:
        """End threads and connections."""
        self.writer.close()
        self.database.close()

    def enroll(self, tenant: str, name: str, *roles: Role, reach: Reach = Reach.TENANT) -> tuple[Principal, str]:
        """A developer of that tenant, or one with these roles, with an API key."""
        chosen = roles or (Role.DEVELOPER,)
        return self.writer.run(lambda unit: self.directory.enroll(unit, tenant, name, chosen, reach=reach))

    def limit(self, resource: Resource, amount: int | None, tenant: str | None = None) -> None:
        """Set a limit of a tenant's own."""
        owner = tenant or self.principal.tenant_id
        self.writer.run(lambda unit: self.quotas.set_limits(unit, owner, {resource: amount}))

    def register(self) -> OwnedHost:
        """A worker of the one host; each call is the next generation."""
        return register(self.writer, self.ids, "local", {"base": "sha256:" + "0" * 64}, 0.0)

    def subject_of(self, token: str) -> Subject:
        """Who calls with that token."""
        return self.directory.subject(token)

    def open_session(self, principal: Principal | None = None, **wish: Any) -> Subject:
        """Another session; `wish`: fields of `NewSession`."""
        _, token = self.sessions.open(principal or self.principal, NewSession(**wish))
        return self.subject_of(token)

    def pipeline_with(
        self, chosen: Bundle, registry: Registry | None = None, limits: ApprovalLimits = NO_APPROVAL_LIMITS
    ) -> Pipeline:
        """A pipeline under another bundle or registry, or with limits of what is asked."""
        tools, decisions = (
            registry or self.registry,
            CallDecisions(FixedBundle(chosen, self.rules), self.approval_service, limits),
        )
        return self.pipeline_of(tools, decisions)

    def pipeline_of(self, registry: RegistryProvider, decisions: CallDecisions, **more: Any) -> Pipeline:
        """A pipeline whose worker looks at once."""
        return LookingPipeline(
            registry=registry,
            decisions=decisions,
            approvals=self.approval_flow(),
            deferred=self.deferred_approvals(registry, decisions),
            approval_service=self.approval_service,
            log=self.log,
            artifacts=self.artifacts,
            writer=self.writer,
            wakeups=self.wakeups,
            ids=self.ids,
            quotas=self.quotas,
            **more,
        )

    def approval_flow(self) -> ApprovalFlow:
        """What puts questions and takes answers."""
        return ApprovalFlow(self.approval_service, self.log, self.writer, self.wakeups)

    def deferred_approvals(self, registry: RegistryProvider, decisions: CallDecisions) -> DeferredApprovals:
        """What puts questions off."""
        return DeferredApprovals(
            registry=registry,
            decisions=decisions,
            approvals=self.approval_flow(),
            log=self.log,
            writer=self.writer,
            wakeups=self.wakeups,
            ids=self.ids,
        )

    @property
    def deferred(self) -> DeferredApprovals:
        """The pipeline's."""
        return self.pipeline._deferred

    def expire_overdue(self) -> int:
        """Deny what nobody answered in time, as API and worker do once a second."""
        return self.deferred.expire_overdue() + self.approval_flow().expire_overdue()

    def find(self, call: str, subject: Subject | None = None) -> Outcome | None:
        """Where a call stands, for its own session or for that one."""
        at = subject or self._whose(call)
        return self.pipeline.find(at.tenant_id, at.session_id, ToolCallId(call))

    def cancel(self, call: str, reason: str, subject: Subject | None = None) -> bool:
        """End a call, as its own session or as that one."""
        at = subject or self._whose(call)
        return self.pipeline.cancel(at.tenant_id, at.session_id, ToolCallId(call), reason)

    def _whose(self, call: str) -> Subject:
        stored = stored_call(self.database, call)
        return stored.subject if stored else self.subject

    def claims(
        self,
        chosen: Bundle | None = None,
        registry: Registry | None = None,
        generation: int = 1,
        *,
        in_flight: InFlightCalls | None = None,
        log_limits: LogLimits | None = None,
    ) -> CallClaimer:
        """A worker's claims."""
        return CallClaimer(
            registry=registry or self.registry,
            bundles=FixedBundle(chosen or self.bundle, self.rules),
            approval_service=self.approval_service,
            log=self.log,
            writer=self.writer,
            host=self.host.id,
            generation=generation,
            quotas=self.quotas,
            in_flight=in_flight,
            log_limits=log_limits,
        )

    def execution(
        self,
        chosen: Bundle | None = None,
        registry: Registry | None = None,
        confirm: Callable[[], None] = lambda: None,
        flush_timer: FlushTimer | None = None,
        output_rate: ByteBuckets | None = None,
    ) -> Execution:
        """A worker's execution; `chosen`: the bundle that decides about another attempt."""
        return Execution(
            registry=registry or self.registry,
            log=self.log,
            artifacts=self.artifacts,
            writer=self.writer,
            clock=self.clock,
            lost_attempts=self.lost_attempts(chosen, registry),
            confirm=confirm,
            flush_timer=flush_timer,
            output_rate=output_rate,
            decide=CallDecisions(FixedBundle(chosen or self.bundle, self.rules), self.approval_service).by_policy,
        )

    def lost_attempts(self, chosen: Bundle | None = None, registry: RegistryProvider | None = None) -> LostAttempts:
        """What ends lost attempts, and begins others."""
        return LostAttempts(
            registry=registry or self.registry,
            bundles=FixedBundle(chosen or self.bundle, self.rules),
            approval_service=self.approval_service,
            log=self.log,
            quotas=self.quotas,
            wakeups=self.wakeups,
        )

    def events(self, subject: Subject | None = None, after: int = 0) -> list[Event]:
        """What the log holds."""
        return self.log.read((subject or self.subject).session_id, after)

    def types(self, subject: Subject | None = None) -> list[str]:
        """The log's event types after `session.created`."""
        return [event.type.value for event in self.events(subject, after=1)]

    def pending(self) -> list[Approval]:
        """Approvals that wait."""
        return [a for a in self.approval_service.listing(self.principal.tenant_id, None, None) if a.state == "pending"]

    @contextmanager
    def unreadable(self, session: SessionId, seq: int, instead: str = "{}") -> Iterator[None]:
        """A stored event that no version could read, for as long as the block."""
        where = {"session": session, "seq": seq}
        ((body,),) = self.sql("SELECT body FROM events WHERE session_id = :session AND seq = :seq", **where)
        put = "UPDATE events SET body = :body WHERE session_id = :session AND seq = :seq"
        self.sql(put, body=instead, **where)
        try:
            yield
        finally:
            self.sql(put, body=body, **where)

    @property
    def now(self) -> str:
        """The database's clock, in its own SQL."""
        return str(database_now().compile(dialect=self.database.reader.dialect))

    def sql(self, statement: str, **values: Any) -> list[Any]:
        """Look or tamper."""

        def work(unit: Any) -> list[Any]:
            done = unit.connection.execute(text(statement), values)
            return list(done) if done.returns_rows else []

        return self.writer.run(work)


@contextmanager
def staged(root: Path, url: str, policy: str = POLICY) -> Iterator[Stage]:
    """A stage that ends with the block."""
    stage = Stage(root, url, policy)
    try:
        yield stage
        if not stage.tampered:
            with stage.database.read() as connection:
                sessions = connection.execute(text("select id from sessions")).scalars().all()
            assert [found for session in sessions if (found := first_violation(read_whole(stage.log, session)))] == []
    finally:
        stage.close()


def read_whole(log: EventLog, session: Any) -> list[Event]:
    """Every event of a session."""
    events: list[Event] = []
    while page := log.read(session, events[-1].seq if events else 0):
        events += page
    return events


def wait_for(fact: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until `fact` is true, and give it; fails with `what` after the deadline."""
    tick = threading.Event()
    for _ in range(int(deadline_s / 0.01)):
        if found := fact():
            return found
        tick.wait(0.01)
    raise AssertionError(f"not within {deadline_s} s: {what}")


class Room:
    """A sandbox whose execs say what they say chunk by chunk, where the fake's come in one piece; files are the fake's."""

    def __init__(
        self, play: Callable[[ExecRequest, OnOutput], ExecResult] | None = None, profile: Profile | None = None
    ) -> None:
        self.owner = "sbx"
        self.runner = "run"
        self.files = FakeFiles(profile or Profile())
        self.requests: list[ExecRequest] = []
        self.acknowledged: list[str] = []
        self.cancelled: list[str] = []
        self.closed = False
        self._play = play or said(b"")

    @property
    def attestation(self) -> Attestation:
        return Attestation(
            network_interfaces=("lo",),
            tool_uid=200_000,
            capabilities=(),
            no_new_privileges=True,
            seccomp="filter",
            read_only_root=True,
            memory_bytes=1,
            pids_limit=1,
            runtime="runc",
            image="sha256:0",
        )

    def files_of(self, call: str, attempt: int) -> FakeFiles:  # noqa: ARG002
        return self.files

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        self.requests.append(request)
        return self._play(request, on_output)

    def cancel(self, call: str, attempt: int) -> bool:  # noqa: ARG002
        self.cancelled.append(call)
        return True

    def acknowledge(self, call: str, attempt: int) -> None:  # noqa: ARG002
        self.acknowledged.append(call)

    def import_tar(self, archive: bytes) -> int:
        return self.files.import_tar(archive)

    def close(self) -> None:
        self.closed = True


def said(*chunks: bytes | tuple[str, bytes] | int, exit_code: int = 0, dropped: int = 0) -> Callable[..., ExecResult]:
    """A script: these chunks, then this exit. A chunk is stdout's, or (stream, bytes), or the bytes dropped in between."""

    def play(_request: ExecRequest, on_output: OnOutput) -> ExecResult:
        sizes = {"stdout": 0, "stderr": 0}
        gap, lost = 0, dropped
        for chunk in chunks:
            if isinstance(chunk, int):
                gap, lost = sizes["stdout"], chunk
                sizes["stdout"] += chunk
                continue
            stream, data = chunk if isinstance(chunk, tuple) else ("stdout", chunk)
            on_output(Chunk(stream=stream, offset=sizes[stream], data=data))
            sizes[stream] += len(data)
        return ExecResult(
            kind=ExitKind.EXITED,
            exit_code=exit_code,
            duration_s=0.0123,
            stdout=OutputCount(bytes=sizes["stdout"] + dropped, dropped=lost, gap=sizes["stdout"] if dropped else gap),
            stderr=OutputCount(bytes=sizes["stderr"]),
        )

    return play


def stored_call(database, call):
    """The row of a call, or None."""
    with database.read() as connection:
        return call_store.find(connection, call)
