"""Opens, lists and closes sessions, and stops and starts their sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from codesdk.approvals import store as approval_store
from codesdk.approvals.feed import FeedKind, publish
from codesdk.approvals.grants import store as grant_store
from codesdk.approvals.store import ApprovalRef
from codesdk.artifacts import ArtifactService
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.clock import Clock, to_rfc3339
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import CONTRACT_VERSION
from codesdk.domain.ids import ArtifactId, IdKind, Ids, SandboxId, SessionId, TenantId
from codesdk.domain.payloads import SandboxSessionClosed, SessionCreated
from codesdk.domain.quotas import Quotas, Resource
from codesdk.domain.records import Session
from codesdk.domain.sandbox_resources import reserve_sandbox
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import EventLog
from codesdk.hosts import store as host_store
from codesdk.hosts.host import HostState
from codesdk.jobs import Wakeups
from codesdk.policy import Bundle
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.sandbox.isolation.disk_quota import QuotaBackend
from codesdk.sandbox.port.faults import SandboxEnded, StopRefused
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.sessions import store
from codesdk.sessions.placement import place_session
from codesdk.sessions.session import (
    CLOSED_ON_REQUEST,
    NewSession,
    NoSnapshot,
    SandboxBusy,
    SessionNotEnded,
    SessionRemoved,
    SessionSandbox,
    SessionUnknown,
    SnapshotPending,
)
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.decision import store as rate_limit_store
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.records import call_events
from codesdk.toolcalls.records import store as call_store


class SessionService:
    """The sessions of one database."""

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        log: EventLog,
        artifacts: ArtifactService,
        directory: IdentityDirectory,
        quotas: Quotas[Unit],
        wakeups: Wakeups,
        clock: Clock,
        ids: Ids,
        profiles: Profiles,
        rules: SessionRules,
        token_ttl_s: float,
        snapshots: bool = False,
    ) -> None:
        """Create the service. `profiles`: those that new sessions can use; `token_ttl_s`: a session token's lifetime.

        `snapshots`: the default for sessions that don't set it.
        """
        self._snapshots = snapshots
        self._database = database
        self._writer = writer
        self._log = log
        self._artifacts = artifacts
        self._directory = directory
        self._quotas = quotas
        self._wakeups = wakeups
        self._clock = clock
        self._ids = ids
        self._profiles = profiles
        self._rules = rules
        self._token_ttl_s = token_ttl_s

    def open(self, principal: Principal, wish: NewSession) -> tuple[Session, str]:
        """Open a session and start creating its sandbox. Returns the session and its token, which can't be read again.

        Raises:
            ProfileUnknown: there is no profile of that name. NoHost: no host has room; `details` has the reasons.
            PolicyInvalid: the session's rules can't be parsed, or contain an `allow`.
            ArtifactUnknown: the tenant has no such seed artifact.
            SessionUnknown, SessionNotEnded, SnapshotPending, NoSnapshot: `from_session` can't be used.
            YoloNotAllowed: the tenant may not use the `yolo` mode.
            QuotaExceeded: the tenant's limit of sessions, sandbox memory or sandbox CPU is reached.
        """
        return self._writer.run(lambda unit: self.open_in_unit(unit, principal, wish))

    def open_in_unit(self, unit: Unit, principal: Principal, wish: NewSession) -> tuple[Session, str]:
        """Like `open`, in the caller's unit. If it raises, the caller must roll the unit back."""
        profile = self._profiles.named(wish.profile)
        rules = self._rules.check(wish.policy, principal.tenant_id) if wish.policy is not None else None
        return self._open(unit, principal, wish, profile, rules)

    def issue_token(self, principal: Principal, session: str) -> tuple[Session, str]:
        """Issue one more token for an open session that this principal opened; earlier tokens stay valid.

        Raises:
            SessionUnknown: the principal has no such open session. Others' would let it act in their name.
        """
        found = self._directory.subject_in(principal, session)
        if found is None:
            raise SessionUnknown("There is no such session of yours, or it is closed.")
        token = self._writer.run(lambda unit: self._directory.mint_token(unit, found.session_id, self._token_ttl_s))
        return self.find(principal.tenant_id, session), token

    def find(self, tenant: TenantId, session: str) -> Session:
        """Return the session.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant. SessionRemoved: retention removed it.
        """
        with self._database.read() as connection:
            found = store.find(connection, tenant, session)
            removed = store.removed_at(connection, tenant, session) if found is None else None
        if removed is not None:
            when = to_rfc3339(datetime.fromtimestamp(removed, UTC))
            raise SessionRemoved(
                f"Session {session} and its log were removed at {when} by retention.",
                advice="Import an export of it, if there is one.",
                details={"removed_at": when},
            )
        if found is None:
            raise SessionUnknown(f"There is no session {session}.")
        return found

    def profile(self, session: SessionId) -> Profile:
        """Return the profile that an existing session was opened with."""
        with self._database.read() as connection:
            return Profile.model_validate_json(store.profile(connection, session))

    def listing(self, tenant: TenantId, limit: int = 100) -> list[Session]:
        """List the tenant's sessions, newest first."""
        with self._database.read() as connection:
            return store.listing(connection, tenant, limit)

    def list_all_open(self) -> list[Session]:
        """List the open sessions of all tenants, for a shutdown of the installation."""
        with self._database.read() as connection:
            return store.list_all_open(connection)

    def close(self, tenant: TenantId, session: str) -> Session:
        """Close the session: deny waiting and queued calls, cancel running ones, remove the sandbox.

        Closing a closed session does nothing.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant.
        """
        found = self.find(tenant, session)
        self._writer.run(lambda unit: self._close(unit, found, CLOSED_ON_REQUEST))
        return self.find(tenant, session)

    def sandbox(self, tenant: TenantId, session: str) -> SessionSandbox:
        """Return the state of the session's sandbox.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant.
        """
        found = self.find(tenant, session)
        with self._database.read() as connection:
            row = sandbox_store.of_session(connection, found.id)
        return SessionSandbox.of(row)

    def stop_sandbox(self, tenant: TenantId, session: str) -> SessionSandbox:
        """Stop the sandbox: end its processes and free its memory. Keeps the workspace.

        The worker stops it, unless a call starts first. The next call restarts it. Stopping a stopped sandbox does
        nothing.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant. SandboxEnded: the sandbox has ended or is
                ending.
            SandboxBusy: a call of the session is queued or running, or the sandbox is being created.
        """
        return self._change_sandbox(self.find(tenant, session), self._stop)

    def start_sandbox(self, tenant: TenantId, session: str) -> SessionSandbox:
        """Start a stopped sandbox now instead of with the next call. Starting a running one does nothing.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant. SandboxEnded: the sandbox has ended or is
                ending.
        """
        return self._change_sandbox(self.find(tenant, session), self._start)

    def _change_sandbox(self, session: Session, turn: Callable[[Unit, SandboxRow], None]) -> SessionSandbox:
        def work(unit: Unit) -> None:
            row = sandbox_store.of_session(unit.connection, session.id)
            if row is None or row.state not in sandbox_store.OPEN_STATES:
                raise SandboxEnded("The session's sandbox has ended.", advice="Open another session.")
            turn(unit, row)
            unit.after_commit(lambda: self._wakeups.wake(session.host_id, session.id))

        self._writer.run(work)
        return self.sandbox(session.tenant_id, session.id)

    @staticmethod
    def _stop(unit: Unit, row: SandboxRow) -> None:
        if row.state in (SandboxState.STOPPING, SandboxState.HALTING, SandboxState.STOPPED):
            return
        if row.attestation is not None and row.attestation.disk_cap == QuotaBackend.TMPFS.value:
            raise StopRefused(row.id)
        if not sandbox_store.request_stop(unit.connection, row.id):
            raise SandboxBusy(
                "The sandbox is being created, or the session has queued or running calls.",
                advice="Try again when the session's calls have ended, or cancel them.",
            )

    @staticmethod
    def _start(unit: Unit, row: SandboxRow) -> None:
        # If the worker hasn't begun to stop it, cancelling the request is enough.
        sandbox_store.change_state(unit.connection, row.id, (SandboxState.STOPPING,), SandboxState.READY)
        before = (SandboxState.HALTING, SandboxState.STOPPED)
        sandbox_store.change_state(unit.connection, row.id, before, SandboxState.STARTING)

    def close_if(self, tenant: TenantId, session: SessionId, reason: str, due: Callable[[Unit], bool]) -> bool:
        """Close the session with `reason` if `due` is true in the closing transaction. Returns whether it closed.

        Raises:
            SessionUnknown: it doesn't exist or belongs to another tenant.
        """
        found = self.find(tenant, session)
        return self._writer.run(lambda unit: due(unit) and self._close(unit, found, reason))

    def _open(
        self, unit: Unit, principal: Principal, wish: NewSession, profile: Profile, rules: Bundle | None
    ) -> tuple[Session, str]:
        if wish.permission_mode is PermissionMode.YOLO:
            self._directory.check_yolo(unit, principal.tenant_id)
        seed = wish.seed_artifact
        if wish.from_session is not None:
            seed = _last_snapshot(unit, principal.tenant_id, wish.from_session)
        if seed is not None:
            self._artifacts.lock(unit, principal.tenant_id, seed)
        self._reserve(unit, principal.tenant_id, profile)
        # Last of the checks, because it locks the host's row until the commit.
        placed = place_session(unit, profile, wish.host_labels)
        host, image = placed.host, placed.image
        session = Session(
            id=SessionId(self._ids.new(IdKind.SESSION)),
            tenant_id=principal.tenant_id,
            principal_id=principal.id,
            host_id=host,
            state="open",
            runtime=wish.runtime,
            permission_mode=wish.permission_mode,
            labels=wish.labels,
            image=image,
            priority=wish.priority,
            parallel_calls=wish.parallel_calls,
            watch=wish.watch,
            last_seq=0,
            created_at=self._clock.now().timestamp(),
            snapshots=self._snapshots if wish.snapshots is None else wish.snapshots,
            opened_from=wish.from_session,
            policy_hash=self._rules.keep(unit, rules, wish.policy) if rules and wish.policy is not None else None,
        )
        store.insert(
            unit.connection,
            session,
            profile=profile.model_dump(mode="json"),
            seed=seed,
            epoch=self._ids.new(IdKind.REQUEST),
        )
        if sandbox_store.claim_for_session(unit.connection, session.id, host, image=image, profile=profile) is None:
            fresh = SandboxId(self._ids.new(IdKind.SANDBOX))
            sandbox_store.insert(unit.connection, fresh, session.id, host, image=image, profile=profile)
        token = self._directory.mint_token(unit, session.id, self._token_ttl_s)
        created = SessionCreated(
            contract_version=CONTRACT_VERSION,
            permission_mode=session.permission_mode,
            labels=session.labels,
            profile=profile.name,
            image=image,
            opened_from=session.opened_from,
            policy_hash=session.policy_hash,
        )
        self._log.append(unit, call_events.draft(_subject(session), created))
        unit.after_commit(lambda: self._wakeups.wake(host, session.id))
        return session, token

    def _reserve(self, unit: Unit, tenant: TenantId, profile: Profile) -> None:
        self._quotas.reserve(unit, tenant, Resource.SESSIONS)
        self._quotas.reserve(unit, tenant, Resource.LOG_BYTES)  # one byte: its log may begin
        reserve_sandbox(self._quotas, unit, tenant, profile.model_dump())

    def _close(self, unit: Unit, session: Session, reason: str) -> bool:
        if not store.close(unit.connection, session.id, self._clock.now().timestamp(), reason):
            return False
        why = "The session was closed." if reason == CLOSED_ON_REQUEST else f"The session was closed: {reason}."
        self._directory.revoke_tokens(unit, session.id)
        for approval in approval_store.cancel_of_session(unit.connection, session.id):
            publish(unit, ApprovalRef(approval, session.tenant_id, session.id), FeedKind.CANCELLED)
        grant_store.end_of_session(unit.connection, session.id)
        rate_limit_store.forget(unit.connection, session.id)
        for state in (CallState.WAITING, CallState.QUEUED):
            for stored in call_store.list_in_state(unit.connection, state, session=session.id, hold=True):
                deny(unit, self._log, stored, DenialCode.SESSION_CLOSED, why)
        for stored in call_store.list_in_state(unit.connection, CallState.RUNNING, session=session.id):
            call_store.request_cancel(unit.connection, stored.identity.tool_call_id)
        row = sandbox_store.of_session(unit.connection, session.id)
        if row is not None:
            closing = SandboxState.CLOSING
            sandbox_store.change_state(
                unit.connection, row.id, sandbox_store.OPEN_STATES, closing, reason=f"session closed: {reason}"
            )
        self._log.append(unit, call_events.draft(_subject(session), SandboxSessionClosed(reason=reason)))
        unit.after_commit(lambda: self._wakeups.wake(session.host_id, session.id))
        return True


def _subject(session: Session) -> Subject:
    return Subject(
        tenant_id=session.tenant_id,
        principal_id=session.principal_id,
        session_id=session.id,
        permission_mode=session.permission_mode,
        runtime=session.runtime,
    )


def _last_snapshot(unit: Unit, tenant: TenantId, session: SessionId) -> ArtifactId:
    """The last snapshot of an ended session.

    Raises:
        SessionUnknown: no such session of this tenant.
        SessionNotEnded: the session is open.
        SnapshotPending: the session's worker has yet to take the last snapshot.
        NoSnapshot: none was taken.
    """
    found = store.find(unit.connection, tenant, session)
    if found is None:
        raise SessionUnknown(f"There is no session {session}.")
    if found.state == "open":
        raise SessionNotEnded(f"The session {session} has not ended.", advice="Close it first, or continue in it.")
    row = sandbox_store.of_session(unit.connection, session)
    if found.snapshots and row is not None and row.state is SandboxState.CLOSING:
        host = host_store.find(unit.connection, found.host_id)
        if host is not None and host.state is not HostState.LOST and not host.away:
            raise SnapshotPending(f"The last snapshot of {session} is being taken.", advice="Try again in a moment.")
    if found.snapshot_artifact is None:
        raise NoSnapshot(
            f"No snapshot was taken of the session {session}.",
            advice="Snapshots are taken after calls that write, in sessions that were opened with `snapshots`.",
        )
    return found.snapshot_artifact
