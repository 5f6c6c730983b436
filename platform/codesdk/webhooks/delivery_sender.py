"""Sends due deliveries, one leased endpoint at a time, and records each attempt.

Delivery is at least once: a process that dies between sending and recording leaves the delivery pending, and another
process sends it again under the same `webhook-id` when the lease expires.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence

from codesdk.domain.clock import Clock
from codesdk.errors import Fault
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.webhooks import store
from codesdk.webhooks.delivery import Attempt, Delivery, DeliveryState, Failure, Message, next_due
from codesdk.webhooks.endpoint import EndpointKind
from codesdk.webhooks.endpoint_service import KEY_PURPOSE, TARGET_PURPOSE
from codesdk.webhooks.one_time_link_service import OneTimeLinkService
from codesdk.webhooks.outgoing_message import AnswerLink, DigestItem, OutgoingMessage, Sender, SendResult
from codesdk.webhooks.secret_encryption import SecretCipher

LEASE_S = 60.0
"""Four times the deadline of a request, so that a slow sender does not lose its lease."""
BATCH_SIZE = 20
"""Deliveries per lease."""
BATCH_S = 20.0
"""Seconds after which no further delivery starts under the same lease."""
MAX_LEASES_PER_TENANT = 2
"""Endpoints of one tenant that are leased at once, across all processes."""
BACKOFF_S = 5.0
MAX_BACKOFF_S = 300.0
"""Seconds an endpoint backs off after a failure: the first, doubled each time, up to the maximum. All its deliveries
wait, so that a dead endpoint costs one attempt in five minutes, whatever the size of its backlog."""
DIGEST_KINDS = frozenset({EndpointKind.CHAT, EndpointKind.MAIL})
DIGEST_ABOVE = 3
"""People get up to this many pending messages one by one; more are combined in a digest."""
DIGEST_MAX_TRIES = 3
"""Attempts after which a message leaves the digest, so that one that is always refused does not block the others."""
PendingMessage = tuple[Delivery, Message]
_log = logging.getLogger(__name__)


class DeliverySender:
    """Leases endpoints and sends to them. Safe to use from several threads, each with its own holder name."""

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        clock: Clock,
        seal: SecretCipher,
        tickets: OneTimeLinkService,
        senders: Mapping[EndpointKind, Sender],
        base_url: Callable[[], str],
        jitter: Callable[[], float],
    ) -> None:
        """`base_url`: public URL of the API; `jitter`: random, from 0 up to 1."""
        self._database = database
        self._writer = writer
        self._clock = clock
        self._seal = seal
        self._tickets = tickets
        self._senders = senders
        self._base_url = base_url
        self._jitter = jitter

    def send_next(self, holder: str) -> int | None:
        """Lease the endpoint that has waited longest and send its due deliveries; returns how many. None: nothing is due."""
        now = self._now()
        with self._database.read() as connection:
            if not store.is_due(connection, now, MAX_LEASES_PER_TENANT):
                return None
        found = self._writer.run(
            lambda unit: store.lease(unit.connection, holder, now, now + LEASE_S, MAX_LEASES_PER_TENANT)
        )
        if found is None:
            return None
        try:
            return self._send_due(found, holder)
        finally:
            self._writer.run(lambda unit: store.release(unit.connection, found.endpoint.id, holder))

    def _send_due(self, stored: store.StoredEndpoint, holder: str) -> int:
        began = self._now()
        with self._database.read() as connection:
            waiting = store.due(connection, stored.endpoint.id, began, BATCH_SIZE)
        sent = 0
        for group in _group(stored.endpoint.kind, waiting):
            now = self._now()
            if now - began > BATCH_S or not self._renew_lease(stored, holder, now + LEASE_S):
                break
            for delivery, _ in group:
                if now > delivery.until:
                    self._abandon(delivery)
            living = [each for each in group if now <= each[0].until]
            if not living:
                continue
            outcome = self._send(stored, living)
            sent += len(living)
            if outcome.failure is None and stored.endpoint.failures:
                stored = stored._replace(endpoint=stored.endpoint.model_copy(update={"failures": 0}))
            if not self._record(stored, [delivery for delivery, _ in living], outcome, began=now):
                break
        return sent

    def _renew_lease(self, stored: store.StoredEndpoint, holder: str, until: float) -> bool:
        return self._writer.run(lambda unit: store.renew_lease(unit.connection, stored.endpoint.id, holder, until))

    def _abandon(self, delivery: Delivery) -> None:
        """Give up on an outdated delivery: the approval has expired, or the event is a day old."""
        dead = delivery.model_copy(update={"state": DeliveryState.DEAD})
        self._writer.run(lambda unit: store.record(unit.connection, dead))

    def _send(self, stored: store.StoredEndpoint, group: Sequence[PendingMessage]) -> SendResult:
        try:
            return self._senders[stored.endpoint.kind].send(self._outgoing(stored, group))
        except Fault as fault:  # a secret cannot be unsealed, or the target is no longer allowed
            return SendResult(failure=Failure.UNSENDABLE, detail=fault.message)

    def _outgoing(self, stored: store.StoredEndpoint, group: Sequence[PendingMessage]) -> OutgoingMessage:
        first, *more = (DigestItem(message=message, answer=self._answer_link(delivery)) for delivery, message in group)
        endpoint, at = stored.endpoint, self._clock.now()
        living = [key for key in stored.keys if key.retires_at is None or key.retires_at > at.timestamp()]
        return OutgoingMessage(
            id=_message_id([delivery for delivery, _ in group]),
            target=self._seal.open(stored.target, TARGET_PURPOSE + endpoint.id),
            keys=tuple(self._seal.open(key.sealed, KEY_PURPOSE + endpoint.id) for key in living),
            message=first.message,
            answer=first.answer,
            at=at,
            more=tuple(more),
        )

    def _answer_link(self, delivery: Delivery) -> AnswerLink | None:
        ticket = self._tickets.find(delivery.ticket_id) if delivery.ticket_id else None
        if ticket is None:
            return None
        base = self._base_url()
        return AnswerLink(
            approval_id=ticket.approval_id,
            digest=ticket.digest,
            expires_at=ticket.expires_at,
            url=f"{base}/v1/approvals/{ticket.approval_id}/decision",
            token=self._tickets.token(ticket),
            page=self._tickets.page(ticket, base),
        )

    def _record(
        self, stored: store.StoredEndpoint, sent: Sequence[Delivery], outcome: SendResult, *, began: float
    ) -> bool:
        """Record the attempt for each delivery in the message. False: the endpoint backs off now."""
        now = self._now()
        attempt = Attempt(
            at=began,
            duration_ms=round((now - began) * 1000, 1),
            status=outcome.status,
            failure=outcome.failure,
            detail=outcome.detail[:200],
            retry_after_s=outcome.retry_after_s,
        )
        jitter = self._jitter()  # one for the whole digest, so that it is retried as a digest
        done = [_apply_outcome(delivery, attempt, outcome, now, jitter) for delivery in sent]
        rest = 0.0
        if outcome.failure is not None:
            rest = min(BACKOFF_S * 2.0 ** min(stored.endpoint.failures, 16), MAX_BACKOFF_S) * (
                0.8 + 0.4 * self._jitter()
            )
            for delivery in sent:
                _log.info("%s to %s was not delivered: %s", delivery.id, stored.endpoint.id, outcome.detail)

        def work(unit: Unit) -> None:
            for each in done:
                store.record(unit.connection, each)
            failures = 0 if outcome.failure is None else stored.endpoint.failures + 1
            store.set_failures(unit.connection, stored.endpoint.id, failures, now + rest if rest else 0.0)
            if outcome.gone:
                store.set_disabled(unit.connection, stored.endpoint.id, now, "it answered 410 Gone")

        self._writer.run(work)
        return outcome.failure is None

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _group(kind: EndpointKind, waiting: Sequence[PendingMessage]) -> list[list[PendingMessage]]:
    """Group deliveries into messages: a digest where many wait for people, else one message each."""
    willing = [each for each in waiting if each[0].tries < DIGEST_MAX_TRIES] if kind in DIGEST_KINDS else []
    if len(willing) <= DIGEST_ABOVE:
        return [[each] for each in waiting]
    return [willing, *([each] for each in waiting if each not in willing)]


def _message_id(group: Sequence[Delivery]) -> str:
    """An id derived from the deliveries in the message: receivers drop a repeated id."""
    if len(group) == 1:
        return group[0].id
    return "digest_" + hashlib.sha256(" ".join(delivery.id for delivery in group).encode()).hexdigest()[:26]


def _apply_outcome(delivery: Delivery, attempt: Attempt, outcome: SendResult, now: float, jitter: float) -> Delivery:
    """The delivery after the attempt."""
    done = delivery.model_copy(update={"attempts": (*delivery.attempts, attempt), "tries": delivery.tries + 1})
    if outcome.failure is None:
        return done.model_copy(update={"state": DeliveryState.DELIVERED})
    due = None if outcome.gone else next_due(delivery, now, jitter, outcome.retry_after_s)
    return done.model_copy(update={"state": DeliveryState.DEAD} if due is None else {"due_at": due})
