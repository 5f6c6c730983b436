"""Wires what the API process sends: webhook endpoints, one-time links, delivery threads."""

from __future__ import annotations

import os
import random
import secrets
import ssl
from collections.abc import Callable, Mapping

from codesdk.approvals import ApprovalService, ApprovalState, ApprovalUnknown
from codesdk.approvals.progress import progress_line
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ApprovalId, Ids, TenantId
from codesdk.domain.network.addresses import allow_networks
from codesdk.domain.network.resolver import public_and_remote, system_resolve
from codesdk.eventlog.log import EventLog
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.webhooks import OneTimeLinkService, SecretCipher
from codesdk.webhooks.delivery_sender import DeliverySender
from codesdk.webhooks.delivery_workers import DeliveryWorkers
from codesdk.webhooks.endpoint import EndpointKind
from codesdk.webhooks.endpoint_service import EndpointService
from codesdk.webhooks.fanout import ApprovalLookup, ApprovalSnapshot, EventFanout
from codesdk.webhooks.http_client import WebhookClient
from codesdk.webhooks.http_senders import ChatSender, WebhookSender
from codesdk.webhooks.mail_sender import MailSender, MailServer
from codesdk.webhooks.outgoing_message import Sender


class NotificationServices:
    """Webhook endpoints, one-time links, and the workers that deliver messages."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        log: EventLog,
        approvals: ApprovalService,
        directory: IdentityDirectory,
    ) -> None:
        seal = SecretCipher(settings.resolved_sealing_key)
        senders = senders_of(settings, clock)
        self.one_time_links = OneTimeLinkService(database, ids, seal)
        self.endpoints = EndpointService(
            database=database, writer=writer, clock=clock, ids=ids, seal=seal, directory=directory, senders=senders
        )

        def delivery_workers(base_url: str) -> DeliveryWorkers:
            links = self.one_time_links
            feed = EventFanout(
                log=log, writer=writer, clock=clock, ids=ids, tickets=links, ask=approval_lookup(approvals)
            )
            sender = DeliverySender(
                database=database,
                writer=writer,
                clock=clock,
                seal=seal,
                tickets=links,
                senders=senders,
                base_url=lambda: base_url,
                jitter=random.SystemRandom().random,
            )
            name = f"{os.getpid()}-{secrets.token_hex(8)}"
            return DeliveryWorkers(feed, sender, name=name, threads=settings.webhook_threads, poll_s=settings.poll_s)

        self.delivery_workers: Callable[[str], DeliveryWorkers] = delivery_workers
        """Makes the delivery threads, not started yet; takes the API's public URL."""


def senders_of(settings: Settings, clock: Clock) -> Mapping[EndpointKind, Sender]:
    """The sender for each kind of endpoint."""
    policy = allow_networks(settings.webhook_networks, public_and_remote)
    exchange = WebhookClient(system_resolve, policy, ssl.create_default_context(), clock.monotonic)
    server = MailServer.of(settings.smtp_url) if settings.smtp_url else None
    return {
        EndpointKind.WEBHOOK: WebhookSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.CHAT: ChatSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.MAIL: MailSender(server, settings.mail_from, ssl.create_default_context),
    }


def approval_lookup(approvals: ApprovalService) -> ApprovalLookup:
    """Looks up the approval that a message is about."""

    def look_up(tenant: TenantId, approval: ApprovalId) -> ApprovalSnapshot | None:
        try:
            found = approvals.find(tenant, approval)
        except ApprovalUnknown:
            return None
        return ApprovalSnapshot(
            digest=found.digest,
            expires_at=found.expires_at,
            pending=found.state is ApprovalState.PENDING,
            shown=found.shown,
            progress=progress_line(found) if found.demands else "",
        )

    return look_up
