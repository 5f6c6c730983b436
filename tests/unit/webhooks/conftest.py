"""Endpoints, feed and courier over the stage, with a sender that keeps what it is given."""

from __future__ import annotations

import pytest

from codesdk.bootstrap.outward import asking
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.stored import Waiting
from codesdk.webhooks import Seal, Tickets
from codesdk.webhooks.courier import Courier
from codesdk.webhooks.endpoint import EndpointKind, NewEndpoint
from codesdk.webhooks.endpoints import Endpoints
from codesdk.webhooks.fake import KeepingSender
from codesdk.webhooks.feed import Feed

BASE = "https://codesdk.test"


class Post:
    """What goes out."""

    def __init__(self, stage):
        self.stage = stage
        self.sender = KeepingSender()
        self.seal = Seal(lambda: b"k" * 32)
        self.tickets = Tickets(stage.database, stage.ids, self.seal)
        senders = dict.fromkeys(EndpointKind, self.sender)
        self.endpoints = Endpoints(
            database=stage.database,
            writer=stage.writer,
            clock=stage.clock,
            ids=stage.ids,
            seal=self.seal,
            directory=stage.directory,
            senders=senders,
        )
        self.feed = self.another_feed()
        self.courier = Courier(
            database=stage.database,
            writer=stage.writer,
            clock=stage.clock,
            seal=self.seal,
            tickets=self.tickets,
            senders=senders,
            base_url=lambda: BASE,
            roll=lambda: 0.5,
        )

    def another_feed(self):
        stage = self.stage
        return Feed(
            log=stage.log,
            writer=stage.writer,
            clock=stage.clock,
            ids=stage.ids,
            tickets=self.tickets,
            ask=asking(stage.desk),
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
        while (done := self.courier.turn(holder)) is not None:
            sent += done
        return sent


@pytest.fixture
def post(stage):
    return Post(stage)
