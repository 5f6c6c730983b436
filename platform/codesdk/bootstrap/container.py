"""Builds every service once, in order, and closes them in the other."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from dataclasses import dataclass

from codesdk.approvals import Desk
from codesdk.artifacts import Artifacts, Collector
from codesdk.bootstrap.administration import wire_tenancy
from codesdk.bootstrap.outward import Outward, wire_outward
from codesdk.bootstrap.policy_record import PolicyRecord
from codesdk.bootstrap.record import lock_path
from codesdk.bootstrap.shelf import Shelf
from codesdk.domain.clock import Clock, SystemClock
from codesdk.domain.ids import Ids, RandomIds
from codesdk.domain.resolution import not_this_machine, system_resolve
from codesdk.eventlog.hints import Hints, RedisHints
from codesdk.eventlog.log import Log
from codesdk.eventlog.tail import Tail
from codesdk.hosts import Hosts
from codesdk.hosts.watch import LeaseWatch
from codesdk.jobs import RqWakeups, Wakeups
from codesdk.metrics import Figures
from codesdk.policy import ActiveBundles
from codesdk.policy.sessions import SessionRules
from codesdk.policy.shadow import Shadow
from codesdk.policy.versions import Versions
from codesdk.registry import ActiveRegistry
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.profiles import DEFAULT, Profiles, load_profiles
from codesdk.sessions import Sessions
from codesdk.sessions.admission import Admission
from codesdk.sessions.lost_hosts import LostHosts
from codesdk.settings import Settings
from codesdk.sources.changes import Changes
from codesdk.sources.roster import Roster
from codesdk.storage.database import Database
from codesdk.storage.migration import bring_up
from codesdk.storage.writer import Writer
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.directory import Directory
from codesdk.tenancy.logins import ActiveIssuers, KeyRing, Logins, fetching
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.toolcalls.asks import Asks
from codesdk.toolcalls.attempts import Attempts
from codesdk.toolcalls.lost import Losses
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.refusals import Refusals
from codesdk.toolcalls.results import Results
from codesdk.webhooks import Tickets


@dataclass(frozen=True)
class Services:
    """What API, worker and CLI commands work with."""

    settings: Settings
    clock: Clock
    ids: Ids
    database: Database
    writer: Writer
    hints: Hints
    log: Log
    tail: Tail
    artifacts: Artifacts
    collector: Collector
    directory: Directory
    quotas: TenantQuotas
    administration: Administration
    wakeups: Wakeups
    desk: Desk
    tickets: Tickets
    outward: Outward
    registry: ActiveRegistry
    bundles: ActiveBundles
    versions: Versions
    shadow: Shadow
    pipeline: Pipeline
    losses: Losses
    results: Results
    sessions: Sessions
    source_changes: Changes
    hosts: Hosts
    servers: Roster
    figures: Figures
    lost_hosts: LostHosts
    logins: Logins
    admission: Admission
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
        bring_up(database, migrate=settings.auto_migrate)
        rules = SessionRules(database, known_tools)
        bundles.know_sessions(rules)
        hints = hints or RedisHints(settings.resolved_redis_url())
        opened.callback(hints.close)
        wakeups = wakeups or RqWakeups(settings.resolved_redis_url(), ids)
        opened.callback(wakeups.close)
        writer = Writer(database, lock_path(settings, database))
        opened.callback(writer.close)
        source_changes = Changes(database, writer, clock)
        opened.callback(registry.close)
        registry.know_changes(source_changes.withheld)
        registry.watch()
        versions = Versions(database, writer, ids, known_tools, clock)
        bundles.follow(versions)
        policy_record = PolicyRecord(bundles, database, writer, clock)
        policy_record.note()
        bundles.after_look(policy_record.note)
        bundles.watch()
        shadow = Shadow(bundles, versions.saw)
        opened.callback(shadow.close)
        shadow.start()
        log = Log(database, clock, hints)
        tail = Tail(log, hints, clock, settings.poll_s)
        opened.callback(tail.close)
        tenancy = wire_tenancy(settings, database, writer, clock, ids)
        shelf = Shelf(settings, database=database, writer=writer, clock=clock, ids=ids, quotas=tenancy.quotas)
        opened.callback(shelf.close)
        artifacts = shelf.artifacts
        desk = Desk(database, ids)
        outward = wire_outward(
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
            limits=Asks(
                per_minute=settings.asks_per_minute,
                per_minute_of_tenant=settings.asks_per_minute_of_tenant,
                waiting=settings.asks_waiting,
            ),
            shadow=shadow,
        )
        sessions = Sessions(
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
        logins = Logins(
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
            collector=shelf.collector,
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
            losses=Losses(
                log,
                Attempts(
                    registry=registry, bundles=bundles, desk=desk, log=log, quotas=tenancy.quotas, wakeups=wakeups
                ),
            ),
            results=Results(pipeline, log, tail, hints),
            sessions=sessions,
            source_changes=source_changes,
            hosts=tenancy.hosts,
            servers=tenancy.servers,
            figures=Figures(database, Refusals(database)),
            lost_hosts=LostHosts(watch=watch, sessions=sessions, database=database, writer=writer, log=log),
            logins=logins,
            admission=Admission(directory=tenancy.directory, logins=logins, sessions=sessions, writer=writer),
            profile=profiles.named(DEFAULT),
            profiles=profiles,
            _opened=opened.pop_all(),
        )


def key_ring(clock: Clock) -> KeyRing:
    """Issuers' keys, fetched from where this machine reaches them."""
    return KeyRing(
        fetching(system_resolve, not_this_machine, clock.monotonic, ssl.create_default_context), clock.monotonic
    )
