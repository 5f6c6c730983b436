"""What goes out: endpoints, tickets, and the threads that send. Wired here, run by the API."""

from __future__ import annotations

import os
import random
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codesdk.approvals import ApprovalState, ApprovalUnknown, Desk
from codesdk.domain.addresses import allowing
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ApprovalId, Ids, TenantId
from codesdk.domain.resolution import not_this_machine, system_resolve
from codesdk.eventlog.log import Log
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.tenancy.directory import Directory
from codesdk.webhooks import Seal, Tickets
from codesdk.webhooks.courier import Courier
from codesdk.webhooks.endpoint import EndpointKind
from codesdk.webhooks.endpoints import Endpoints
from codesdk.webhooks.exchange import Exchange
from codesdk.webhooks.feed import Ask, Feed, Question
from codesdk.webhooks.mail import MailSender, MailServer
from codesdk.webhooks.parcel import Sender
from codesdk.webhooks.post_room import PostRoom
from codesdk.webhooks.senders import ChatSender, WebhookSender


@dataclass(frozen=True)
class Outward:
    """What goes out of one process."""

    tickets: Tickets
    endpoints: Endpoints
    post_room: Callable[[str], PostRoom]
    """The threads that send, not yet started; takes the URL by which people and programs reach the API."""


def wire_outward(
    settings: Settings,
    *,
    database: Database,
    writer: Writer,
    clock: Clock,
    ids: Ids,
    log: Log,
    desk: Desk,
    directory: Directory,
) -> Outward:
    """The part of the wiring that the outward half of approvals needs."""
    seal = Seal(settings.resolved_sealing_key)
    tickets = Tickets(database, ids, seal)
    senders = senders_of(settings, clock)
    endpoints = Endpoints(
        database=database, writer=writer, clock=clock, ids=ids, seal=seal, directory=directory, senders=senders
    )

    def post_room(base_url: str) -> PostRoom:
        feed = Feed(log=log, writer=writer, clock=clock, ids=ids, tickets=tickets, ask=asking(desk))
        courier = Courier(
            database=database,
            writer=writer,
            clock=clock,
            seal=seal,
            tickets=tickets,
            senders=senders,
            base_url=lambda: base_url,
            roll=random.SystemRandom().random,
        )
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        return PostRoom(feed, courier, name=name, threads=settings.webhook_threads, poll_s=settings.poll_s)

    return Outward(tickets=tickets, endpoints=endpoints, post_room=post_room)


def senders_of(settings: Settings, clock: Clock) -> Mapping[EndpointKind, Sender]:
    """One for each kind."""
    policy = allowing(settings.webhook_networks, not_this_machine)
    exchange = Exchange(system_resolve, policy, ssl.create_default_context(), clock.monotonic)
    server = MailServer.of(settings.smtp_url) if settings.smtp_url else None
    return {
        EndpointKind.WEBHOOK: WebhookSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.CHAT: ChatSender(exchange, policy, allow_http=settings.webhook_allow_http),
        EndpointKind.MAIL: MailSender(server, settings.mail_from, ssl.create_default_context),
    }


def asking(desk: Desk) -> Ask:
    """What messages say of approvals."""

    def ask(tenant: TenantId, approval: ApprovalId) -> Question | None:
        try:
            found = desk.find(tenant, approval)
        except ApprovalUnknown:
            return None
        return Question(
            digest=found.digest,
            expires_at=found.expires_at,
            pending=found.state is ApprovalState.PENDING,
            shown=found.shown,
        )

    return ask
