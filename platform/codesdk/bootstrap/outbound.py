"""What goes out: endpoints, tickets, and the threads that send. Wired here, run by the API."""

from __future__ import annotations

import os
import random
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codesdk.approvals import ApprovalService, ApprovalState, ApprovalUnknown
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ApprovalId, Ids, TenantId
from codesdk.domain.network.addresses import allow_networks
from codesdk.domain.network.resolver import public_and_remote, system_resolve
from codesdk.eventlog.log import EventLog
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.webhooks import OneTimeLinkService, Seal
from codesdk.webhooks.delivery_sender import DeliverySender
from codesdk.webhooks.delivery_workers import DeliveryWorkers
from codesdk.webhooks.endpoint import EndpointKind
from codesdk.webhooks.endpoint_service import EndpointService
from codesdk.webhooks.fanout import ApprovalLookup, ApprovalSnapshot, EventFanout
from codesdk.webhooks.http_client import WebhookClient
from codesdk.webhooks.http_senders import ChatSender, WebhookSender
from codesdk.webhooks.mail_sender import MailSender, MailServer
from codesdk.webhooks.outgoing_message import Sender


@dataclass(frozen=True)
class OutboundServices:
    """What goes out of one process."""

    tickets: OneTimeLinkService
    endpoints: EndpointService
    delivery_workers: Callable[[str], DeliveryWorkers]
    """The threads that send, not yet started; takes the URL by which people and programs reach the API."""


def wire_outbound_services(
    settings: Settings,
    *,
    database: Database,
    writer: Writer,
    clock: Clock,
    ids: Ids,
    log: EventLog,
    desk: ApprovalService,
    directory: IdentityDirectory,
) -> OutboundServices:
    """The part of the wiring that the outward half of approvals needs."""
    seal = Seal(settings.resolved_sealing_key)
    tickets = OneTimeLinkService(database, ids, seal)
    senders = senders_of(settings, clock)
    endpoints = EndpointService(
        database=database, writer=writer, clock=clock, ids=ids, seal=seal, directory=directory, senders=senders
    )

    def delivery_workers(base_url: str) -> DeliveryWorkers:
        feed = EventFanout(log=log, writer=writer, clock=clock, ids=ids, tickets=tickets, ask=approval_lookup(desk))
        sender = DeliverySender(
            database=database,
            writer=writer,
            clock=clock,
            seal=seal,
            tickets=tickets,
            senders=senders,
            base_url=lambda: base_url,
            jitter=random.SystemRandom().random,
        )
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        return DeliveryWorkers(feed, sender, name=name, threads=settings.webhook_threads, poll_s=settings.poll_s)

    return OutboundServices(tickets=tickets, endpoints=endpoints, delivery_workers=delivery_workers)


def senders_of(settings: Settings, clock: Clock) -> Mapping[EndpointKind, Sender]:
    """One for each kind."""
    policy = allow_networks(settings.webhook_networks, public_and_remote)
    exchange = WebhookClient(system_resolve, policy, ssl.create_default_context(), clock.monotonic)
    server = MailServer.of(settings.smtp_url) if settings.smtp_url else None
    return {
        EndpointKind.WEBHOOK: WebhookSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.CHAT: ChatSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.MAIL: MailSender(server, settings.mail_from, ssl.create_default_context),
    }


def approval_lookup(desk: ApprovalService) -> ApprovalLookup:
    """What messages say of approvals."""

    def ask(tenant: TenantId, approval: ApprovalId) -> ApprovalSnapshot | None:
        try:
            found = desk.find(tenant, approval)
        except ApprovalUnknown:
            return None
        return ApprovalSnapshot(
            digest=found.digest,
            expires_at=found.expires_at,
            pending=found.state is ApprovalState.PENDING,
            shown=found.shown,
        )

    return ask
