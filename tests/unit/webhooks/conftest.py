"""Endpoints, feed and delivery sender over the stage, with a sender that records deliveries."""

from __future__ import annotations

import pytest

from codesdk.bootstrap.notification_services import approval_lookup
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Waiting
from codesdk.webhooks import OneTimeLinkService, SecretCipher
from codesdk.webhooks.delivery_sender import DeliverySender
from codesdk.webhooks.endpoint import EndpointKind, NewEndpoint
from codesdk.webhooks.endpoint_service import EndpointService
from codesdk.webhooks.fake import FakeSender
from codesdk.webhooks.fanout import EventFanout

BASE = "https://codesdk.test"


class WebhookStage:
    """What goes out."""

    def __init__(self, stage):
        self.stage = stage
        self.sender = FakeSender()
        self.seal = SecretCipher(lambda: b"k" * 32)
        self.tickets = OneTimeLinkService(stage.database, stage.ids, self.seal)
        senders = dict.fromkeys(EndpointKind, self.sender)
        self.endpoints = EndpointService(
            database=stage.database,
            writer=stage.writer,
            clock=stage.clock,
            ids=stage.ids,
            seal=self.seal,
            directory=stage.directory,
            senders=senders,
        )
        self.feed = self.another_feed()
        self.delivery_sender = DeliverySender(
            database=stage.database,
            writer=stage.writer,
            clock=stage.clock,
            seal=self.seal,
            tickets=self.tickets,
            senders=senders,
            base_url=lambda: BASE,
            jitter=lambda: 0.5,
        )

    def another_feed(self):
        stage = self.stage
        return EventFanout(
            log=stage.log,
            writer=stage.writer,
            clock=stage.clock,
            ids=stage.ids,
            tickets=self.tickets,
            ask=approval_lookup(stage.approval_service),
        )

    def endpoint(self, tenant=None, **wish):
        made = self.endpoints.create(
            tenant or self.stage.principal.tenant_id, NewEndpoint(**{"target": "https://receiver.test/", **wish})
        )
        return made.endpoint

    def deliveries(self, endpoint):
        return self.endpoints.deliveries(endpoint.tenant_id, endpoint.id, None, None, 200)[::-1]

    def approver(self, name="ann"):
        return self.stage.enroll("default", name, Role.APPROVER)[0]

    def ask(self, path="a", subject=None):
        outcome = self.stage.pipeline.submit(
            "workspace.write", {"path": path, "content": "b"}, subject or self.stage.subject
        )
        assert isinstance(outcome, Waiting)
        return outcome

    def turns(self, holder="one"):
        """Until nothing is due."""
        sent = 0
        while (done := self.delivery_sender.send_next(holder)) is not None:
            sent += done
        return sent


@pytest.fixture
def post(stage):
    return WebhookStage(stage)
