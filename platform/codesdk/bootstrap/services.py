"""Wires the services of one process in order, and closes them in reverse."""

from __future__ import annotations

import ssl
from collections.abc import Collection
from contextlib import ExitStack

from codesdk.approvals import ApprovalService
from codesdk.bootstrap.admin_services import AdminServices
from codesdk.bootstrap.artifact_services import ArtifactServices
from codesdk.bootstrap.maintenance import lock_path
from codesdk.bootstrap.notification_services import NotificationServices
from codesdk.bootstrap.policy_audit import PolicyAudit
from codesdk.domain.byte_rate import ByteRate
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.domain.network.resolver import public_and_remote, system_resolve
from codesdk.eventlog.hints import Hints, RedisHints
from codesdk.eventlog.log import EventLog
from codesdk.eventlog.tail import Tail
from codesdk.hosts.lease_watch import LeaseWatch
from codesdk.jobs import RqWakeups, Wakeups
from codesdk.metrics import MetricsExporter
from codesdk.policy import ActiveBundles
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.policy.rollout.shadow import ShadowEvaluator
from codesdk.policy.rollout.version_service import VersionService
from codesdk.registry import ActiveRegistry
from codesdk.sandbox.profiles.loader import DEFAULT, Profiles, load_profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sessions import SessionService
from codesdk.sessions.authentication import SessionAuthenticator
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.settings import Settings
from codesdk.sources.tool_changes import ToolChanges
from codesdk.storage.database import Database
from codesdk.storage.migration import ensure_schema
from codesdk.storage.writer import Writer
from codesdk.tenancy.logins import ActiveIssuers, JwksCache, LoginService, make_fetch
from codesdk.toolcalls.approval.deferred import DeferredApprovals
from codesdk.toolcalls.approval.flow import ApprovalFlow
from codesdk.toolcalls.decision.call_decision import ApprovalLimits, CallDecisions
from codesdk.toolcalls.decision.log_limits import LogLimits
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.results import ResultWaiter
from codesdk.toolcalls.retries.lost_calls import LostAttempts
from codesdk.toolcalls.statistics.denial_counts import DenialCounts


class Services:
    """The services that the API, the worker and CLI commands use, each wired once."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        hints: Hints | None = None,
        wakeups: Wakeups | None = None,
        profile: Profile | None = None,
    ) -> None:
        """Wire one process. Configuration files are read first: an invalid one fails before anything is opened.

        Raises:
            PolicyInvalid, ManifestInvalid, ProfileInvalid, LoginsInvalid: with file, line and column.
            DataDirUnusable, StorageUnavailable: with what to do.
            SchemaBehind: the schema is older, and this process doesn't run migrations (`auto_migrate`).
        """
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or RandomIds(self.clock)
        self.profiles = Profiles({DEFAULT: profile}) if profile is not None else load_profiles(settings.profiles_dir)
        self.profile = self.profiles.named(DEFAULT)
        """The profile of new sessions that name none."""
        self.registry = ActiveRegistry(
            settings.registry_dir, tenants=settings.tenant_tools(), profiles=None if profile else self.profiles.bounds()
        )
        issuers = ActiveIssuers(settings.resolved_logins_file(), optional=not settings.logins_file)
        known_tools = self.registry.known_tools()
        self.bundles = ActiveBundles(
            settings.policies_dir,
            known_tools,
            self.clock,
            tenants=settings.tenant_policies(),
            enforce_tests=settings.enforces_policy_tests(),
        )
        settings.prepare_data_dir()
        with ExitStack() as opened:
            opened.callback(self.bundles.close)
            self._open_storage(opened, hints, wakeups)
            session_rules = SessionRules(self.database, known_tools)
            self._start_policy(opened, session_rules, known_tools)
            self._wire_records(opened)
            self._wire_calls()
            self._wire_sessions(opened, session_rules, issuers)
            self._opened = opened.pop_all()

    def _open_storage(self, opened: ExitStack, hints: Hints | None, wakeups: Wakeups | None) -> None:
        settings = self.settings
        self.database = Database(settings.resolved_database_url(), settings.database_answer_s)
        opened.callback(self.database.close)
        ensure_schema(self.database, migrate=settings.auto_migrate)
        self.hints: Hints = hints or RedisHints(settings.resolved_redis_url())
        opened.callback(self.hints.close)
        self.wakeups: Wakeups = wakeups or RqWakeups(settings.resolved_redis_url(), self.ids)
        opened.callback(self.wakeups.close)
        self.writer = Writer(self.database, lock_path(settings, self.database))
        opened.callback(self.writer.close)

    def _start_policy(self, opened: ExitStack, session_rules: SessionRules, known_tools: Collection[str]) -> None:
        self.bundles.set_session_rules(session_rules)
        self.source_changes = ToolChanges(self.database, self.writer, self.clock)
        opened.callback(self.registry.close)
        self.registry.set_withheld_lookup(self.source_changes.withheld)
        self.registry.watch()
        self.versions = VersionService(self.database, self.writer, self.ids, known_tools, self.clock)
        self.bundles.follow(self.versions)
        policy_audit = PolicyAudit(self.bundles, self.database, self.writer, self.clock)
        policy_audit.note()
        self.bundles.on_refresh(policy_audit.note)
        self.bundles.watch()
        self.shadow = ShadowEvaluator(self.bundles, self.versions.add_differences)
        opened.callback(self.shadow.close)
        self.shadow.start()

    def _wire_records(self, opened: ExitStack) -> None:
        settings = self.settings
        self.log = EventLog(self.database, self.clock, self.hints)
        self.tail = Tail(self.log, self.hints, self.clock, settings.poll_s)
        opened.callback(self.tail.close)
        admin = AdminServices(settings, self.database, self.writer, self.clock, self.ids)
        self.directory = admin.directory
        self.quotas = admin.quotas
        self.administration = admin.administration
        self.hosts = admin.hosts
        self.mcp_servers = admin.mcp_servers
        artifact_services = ArtifactServices(
            settings,
            database=self.database,
            writer=self.writer,
            clock=self.clock,
            ids=self.ids,
            quotas=self.quotas,
        )
        opened.callback(artifact_services.close)
        self.artifacts = artifact_services.artifacts
        self.collector = artifact_services.collector
        self.approvals = ApprovalService(self.database, self.ids)
        self.outbound = NotificationServices(
            settings,
            database=self.database,
            writer=self.writer,
            clock=self.clock,
            ids=self.ids,
            log=self.log,
            approvals=self.approvals,
            directory=self.directory,
        )
        self.one_time_links = self.outbound.one_time_links

    def _wire_calls(self) -> None:
        limits = ApprovalLimits(
            per_minute=self.settings.asks_per_minute,
            per_minute_of_tenant=self.settings.asks_per_minute_of_tenant,
            waiting=self.settings.asks_waiting,
        )
        decisions = CallDecisions(self.bundles, self.approvals, limits)
        self.log_rate = ByteRate(self.settings.log_bytes_per_s, self.settings.log_burst_bytes)
        self.log_limits = LogLimits(self.database, self.quotas, self.log_rate, self.clock)
        self.approval_flow = ApprovalFlow(self.approvals, self.log, self.writer, self.wakeups)
        self.deferred_approvals = DeferredApprovals(
            registry=self.registry,
            decisions=decisions,
            approvals=self.approval_flow,
            log=self.log,
            writer=self.writer,
            wakeups=self.wakeups,
            ids=self.ids,
        )
        self.pipeline = Pipeline(
            registry=self.registry,
            decisions=decisions,
            approvals=self.approval_flow,
            deferred=self.deferred_approvals,
            approval_service=self.approvals,
            log=self.log,
            artifacts=self.artifacts,
            writer=self.writer,
            wakeups=self.wakeups,
            ids=self.ids,
            quotas=self.quotas,
            shadow=self.shadow,
            log_limits=self.log_limits,
        )
        self.lost_attempts = LostAttempts(
            registry=self.registry,
            bundles=self.bundles,
            approval_service=self.approvals,
            log=self.log,
            quotas=self.quotas,
            wakeups=self.wakeups,
        )
        self.results = ResultWaiter(self.pipeline, self.log, self.tail, self.hints)

    def _wire_sessions(self, opened: ExitStack, session_rules: SessionRules, issuers: ActiveIssuers) -> None:
        settings = self.settings
        self.sessions = SessionService(
            database=self.database,
            writer=self.writer,
            log=self.log,
            artifacts=self.artifacts,
            directory=self.directory,
            quotas=self.quotas,
            wakeups=self.wakeups,
            clock=self.clock,
            ids=self.ids,
            profiles=self.profiles,
            rules=session_rules,
            token_ttl_s=settings.session_ttl_s,
            snapshots=settings.snapshots,
        )
        lease_watch = LeaseWatch(self.database, self.writer, self.clock, settings.host_lease_s)
        self.lost_hosts = LostHosts(
            watch=lease_watch, sessions=self.sessions, database=self.database, writer=self.writer, log=self.log
        )
        opened.callback(issuers.close)
        issuers.watch()
        self.logins = LoginService(
            issuers.now,
            key_ring(self.clock),
            database=self.database,
            writer=self.writer,
            quotas=self.quotas,
            clock=self.clock,
            ids=self.ids,
        )
        self.authenticator = SessionAuthenticator(
            directory=self.directory, logins=self.logins, sessions=self.sessions, writer=self.writer
        )
        self.metrics = MetricsExporter(self.database, DenialCounts(self.database), lambda: len(self.bundles.problems()))

    def close(self) -> None:
        """Close everything in reverse order."""
        self._opened.close()


def key_ring(clock: Clock) -> JwksCache:
    """The cache of issuers' signing keys (JWKS)."""
    return JwksCache(
        make_fetch(system_resolve, public_and_remote, clock.monotonic, ssl.create_default_context), clock.monotonic
    )
