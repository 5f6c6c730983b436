"""Builds every service once, in order, and closes them in the other."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from dataclasses import dataclass

from codesdk.approvals import ApprovalService
from codesdk.artifacts import ArtifactService, GarbageCollector
from codesdk.bootstrap.admin_services import wire_admin_services
from codesdk.bootstrap.artifact_services import ArtifactServices
from codesdk.bootstrap.maintenance import lock_path
from codesdk.bootstrap.outbound import OutboundServices, wire_outbound_services
from codesdk.bootstrap.policy_audit import PolicyAudit
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.domain.network.resolver import public_and_remote, system_resolve
from codesdk.eventlog.hints import Hints, RedisHints
from codesdk.eventlog.log import EventLog
from codesdk.eventlog.tail import Tail
from codesdk.hosts import HostService
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
from codesdk.sources.servers.server_list import ServerList
from codesdk.sources.tool_changes import ToolChanges
from codesdk.storage.database import Database
from codesdk.storage.migration import ensure_schema
from codesdk.storage.writer import Writer
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.logins import ActiveIssuers, JwksCache, LoginService, make_fetch
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.toolcalls.decision.approval_limits import ApprovalLimits
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.results import Results
from codesdk.toolcalls.retries.lost_calls import LostAttempts
from codesdk.toolcalls.retries.retry import Retries
from codesdk.toolcalls.statistics.denial_counts import DenialCounts
from codesdk.webhooks import OneTimeLinkService


@dataclass(frozen=True)
class Services:
    """What API, worker and CLI commands work with."""

    settings: Settings
    clock: Clock
    ids: Ids
    database: Database
    writer: Writer
    hints: Hints
    log: EventLog
    tail: Tail
    artifacts: ArtifactService
    collector: GarbageCollector
    directory: IdentityDirectory
    quotas: TenantQuotas
    administration: Administration
    wakeups: Wakeups
    desk: ApprovalService
    tickets: OneTimeLinkService
    outward: OutboundServices
    registry: ActiveRegistry
    bundles: ActiveBundles
    versions: VersionService
    shadow: ShadowEvaluator
    pipeline: Pipeline
    lost_attempts: LostAttempts
    results: Results
    sessions: SessionService
    source_changes: ToolChanges
    hosts: HostService
    servers: ServerList
    figures: MetricsExporter
    lost_hosts: LostHosts
    logins: LoginService
    admission: SessionAuthenticator
    profile: Profile
    """What sandboxes of new sessions are limited to where they name none."""
    profiles: Profiles
    _opened: ExitStack

    def close(self) -> None:
        """Close everything, newest first."""
        self._opened.close()


def open_services(
    settings: Settings,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    hints: Hints | None = None,
    wakeups: Wakeups | None = None,
    profile: Profile | None = None,
) -> Services:
    """Wire one process. What a person wrote is read first: a bad policy file stops everything before it starts.

    Raises:
        PolicyInvalid, ManifestInvalid, ProfileInvalid, LoginsInvalid: with file, line and column.
        DataDirUnusable, StorageUnavailable: with what to do.
        SchemaBehind: migrations are not this process's to run, and some are missing.
    """
    profiles = Profiles({DEFAULT: profile}) if profile is not None else load_profiles(settings.profiles_dir)
    registry = ActiveRegistry(
        settings.registry_dir, tenants=settings.tenant_tools(), profiles=None if profile else profiles.bounds()
    )
    issuers = ActiveIssuers(settings.resolved_logins_file(), optional=not settings.logins_file)
    clock = clock or SystemClock()
    known_tools = registry.names()
    bundles = ActiveBundles(settings.policies_dir, known_tools, clock, tenants=settings.tenant_policies())
    settings.prepare_data_dir()
    ids = ids or RandomIds(clock)
    with ExitStack() as opened:
        opened.callback(bundles.close)
        database = Database(settings.resolved_database_url(), settings.database_answer_s)
        opened.callback(database.close)
        ensure_schema(database, migrate=settings.auto_migrate)
        rules = SessionRules(database, known_tools)
        bundles.set_session_rules(rules)
        hints = hints or RedisHints(settings.resolved_redis_url())
        opened.callback(hints.close)
        wakeups = wakeups or RqWakeups(settings.resolved_redis_url(), ids)
        opened.callback(wakeups.close)
        writer = Writer(database, lock_path(settings, database))
        opened.callback(writer.close)
        source_changes = ToolChanges(database, writer, clock)
        opened.callback(registry.close)
        registry.set_withheld_lookup(source_changes.withheld)
        registry.watch()
        versions = VersionService(database, writer, ids, known_tools, clock)
        bundles.follow(versions)
        policy_record = PolicyAudit(bundles, database, writer, clock)
        policy_record.note()
        bundles.on_refresh(policy_record.note)
        bundles.watch()
        shadow = ShadowEvaluator(bundles, versions.add_differences)
        opened.callback(shadow.close)
        shadow.start()
        log = EventLog(database, clock, hints)
        tail = Tail(log, hints, clock, settings.poll_s)
        opened.callback(tail.close)
        tenancy = wire_admin_services(settings, database, writer, clock, ids)
        artifact_services = ArtifactServices(
            settings, database=database, writer=writer, clock=clock, ids=ids, quotas=tenancy.quotas
        )
        opened.callback(artifact_services.close)
        artifacts = artifact_services.artifacts
        desk = ApprovalService(database, ids)
        outward = wire_outbound_services(
            settings,
            database=database,
            writer=writer,
            clock=clock,
            ids=ids,
            log=log,
            desk=desk,
            directory=tenancy.directory,
        )
        pipeline = Pipeline(
            registry=registry,
            bundles=bundles,
            desk=desk,
            log=log,
            artifacts=artifacts,
            writer=writer,
            wakeups=wakeups,
            ids=ids,
            quotas=tenancy.quotas,
            limits=ApprovalLimits(
                per_minute=settings.asks_per_minute,
                per_minute_of_tenant=settings.asks_per_minute_of_tenant,
                waiting=settings.asks_waiting,
            ),
            shadow=shadow,
        )
        sessions = SessionService(
            database=database,
            writer=writer,
            log=log,
            artifacts=artifacts,
            directory=tenancy.directory,
            quotas=tenancy.quotas,
            wakeups=wakeups,
            clock=clock,
            ids=ids,
            profiles=profiles,
            rules=rules,
            token_ttl_s=settings.session_ttl_s,
            snapshots=settings.snapshots,
        )
        watch = LeaseWatch(database, writer, clock, settings.host_lease_s)
        opened.callback(issuers.close)
        issuers.watch()
        logins = LoginService(
            issuers.now,
            key_ring(clock),
            database=database,
            writer=writer,
            quotas=tenancy.quotas,
            clock=clock,
            ids=ids,
        )
        return Services(
            settings=settings,
            clock=clock,
            ids=ids,
            database=database,
            writer=writer,
            hints=hints,
            log=log,
            tail=tail,
            artifacts=artifacts,
            collector=artifact_services.collector,
            directory=tenancy.directory,
            quotas=tenancy.quotas,
            administration=tenancy.administration,
            wakeups=wakeups,
            desk=desk,
            tickets=outward.tickets,
            outward=outward,
            registry=registry,
            bundles=bundles,
            versions=versions,
            shadow=shadow,
            pipeline=pipeline,
            lost_attempts=LostAttempts(
                log,
                Retries(registry=registry, bundles=bundles, desk=desk, log=log, quotas=tenancy.quotas, wakeups=wakeups),
            ),
            results=Results(pipeline, log, tail, hints),
            sessions=sessions,
            source_changes=source_changes,
            hosts=tenancy.hosts,
            servers=tenancy.servers,
            figures=MetricsExporter(database, DenialCounts(database)),
            lost_hosts=LostHosts(watch=watch, sessions=sessions, database=database, writer=writer, log=log),
            logins=logins,
            admission=SessionAuthenticator(
                directory=tenancy.directory, logins=logins, sessions=sessions, writer=writer
            ),
            profile=profiles.named(DEFAULT),
            profiles=profiles,
            _opened=opened.pop_all(),
        )


def key_ring(clock: Clock) -> JwksCache:
    """Issuers' keys, fetched from where this machine reaches them."""
    return JwksCache(
        make_fetch(system_resolve, public_and_remote, clock.monotonic, ssl.create_default_context), clock.monotonic
    )
