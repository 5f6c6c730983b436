"""Turns events of the log into deliveries, with one cursor for each session.

The cursor and the deliveries are written in one transaction, so that a crash neither repeats nor skips an event. When two
processes read the same events, the first one to move the cursor wins.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.events import Event
from codesdk.domain.ids import ApprovalId, DeliveryId, IdKind, Ids, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.storage.writer import Unit, Writer
from codesdk.webhooks import store
from codesdk.webhooks.delivery import WINDOW_S, Delivery, DeliveryState, Message
from codesdk.webhooks.endpoint import DELIVERABLE_TYPES, Endpoint
from codesdk.webhooks.message_text import APPROVAL_REQUEST_TYPES
from codesdk.webhooks.one_time_link_service import OneTimeLinkService

MAX_SESSIONS_PER_TENANT = 500
"""Sessions of one tenant per step."""
CLOSED_POLL_S = 10.0
"""Seconds between polls of closed sessions, whose logs hardly grow: the delay of their last events."""
MAX_FIELD_BYTES = 2 * 1024
"""Bytes of JSON of one payload field; a larger field is left out and named in `omitted`."""
MAX_PREVIEW_TEXT_BYTES = 512
"""Bytes of JSON of one text of a preview."""
MAX_PREVIEW_FILES = 10
"""Changed files that a message lists if its preview is too large."""
MAX_INPUT_BYTES = 12 * 1024
"""Bytes of JSON of an approval's input; a larger one is on the approval page and in the API."""
_LONG_FIELDS = ("effects", "scripts")
"""Further fields of an approval that are named in `omitted` if they are too large."""
_log = logging.getLogger(__name__)


class ApprovalSnapshot(FrozenModel):
    """The parts of an approval that go into a message."""

    digest: str
    expires_at: float
    pending: bool
    shown: dict[str, Any]
    progress: str = ""
    """How many have approved; empty if one vote decides."""


ApprovalLookup = Callable[[TenantId, ApprovalId], ApprovalSnapshot | None]
"""Finds an approval of a tenant."""


class EventFanout:
    """Creates deliveries from events."""

    def __init__(
        self, *, log: EventLog, writer: Writer, clock: Clock, ids: Ids, tickets: OneTimeLinkService, ask: ApprovalLookup
    ) -> None:
        self._log = log
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._tickets = tickets
        self._lookup_approval = ask
        self._closed_at = -CLOSED_POLL_S

    def step(self) -> int:
        """Process new events of all sessions; returns the number of deliveries created. Called by one thread."""
        now = self._clock.monotonic()
        closed = now - self._closed_at >= CLOSED_POLL_S
        with self._log.database.read() as connection:
            found = store.lagging_sessions(connection, MAX_SESSIONS_PER_TENANT, closed=closed)
        if closed and not found:
            self._closed_at = now  # every session is up to date as of now
        return sum(self._fan_out(each) for each in found)

    def _fan_out(self, place: store.LaggingSession) -> int:
        events, last = self._events(place)
        told = [(event, type_) for event in events if (type_ := type_of(event)) is not None]
        asked = {event.seq: self._approval_snapshot(place.tenant, event) for event, _ in told}

        def work(unit: Unit) -> int:
            if not store.advance(unit.connection, place.session, place.after, last):
                return 0
            listening = store.enabled_endpoints(unit.connection, place.tenant)
            wanted = [
                (event, type_, endpoint) for event, type_ in told for endpoint in listening if endpoint.wants(type_)
            ]
            for event, type_, endpoint in wanted:
                self._add(unit, endpoint, event, type_, asked[event.seq])
            return len(wanted)

        return self._writer.run(work)

    def _events(self, place: store.LaggingSession) -> tuple[list[Event], int]:
        """The next events of the session, and the last sequence number among them."""
        after = place.after or 0
        for limit in (500, 1):
            try:
                events = self._log.read(place.session, after, limit)
            except Fault as fault:
                reason = fault
            else:
                return events, events[-1].seq if events else after
        # Waiting does not make it readable, and later events must still go out.
        _log.warning("event %d of %s is skipped by webhooks: %s", after + 1, place.session, reason)
        return [], after + 1

    def _approval_snapshot(self, tenant: TenantId, event: Event) -> ApprovalSnapshot | None:
        approval = event.payload.get("approval_id")
        return self._lookup_approval(tenant, ApprovalId(approval)) if isinstance(approval, str) else None

    def _add(self, unit: Unit, endpoint: Endpoint, event: Event, type_: str, asked: ApprovalSnapshot | None) -> None:
        now = self._clock.now().timestamp()
        asks = type_ in APPROVAL_REQUEST_TYPES and asked is not None and asked.pending
        ticket = None
        if asks and asked is not None and endpoint.principal_id is not None:
            ticket = self._tickets.mint(
                unit,
                tenant=endpoint.tenant_id,
                session=event.trace.session_id,
                approval=ApprovalId(event.payload["approval_id"]),
                principal=endpoint.principal_id,
                digest=asked.digest,
                expires_at=asked.expires_at,
                endpoint=endpoint.id,
            )
        delivery = Delivery(
            id=DeliveryId(self._ids.new(IdKind.DELIVERY)),
            endpoint_id=endpoint.id,
            tenant_id=endpoint.tenant_id,
            type=type_,
            session_id=event.trace.session_id,
            seq=event.seq,
            ticket_id=ticket.id if ticket else None,
            state=DeliveryState.PENDING,
            created_at=now,
            due_at=now,
            # An expired approval can't be answered; its expiry has its own message.
            until=min(now + WINDOW_S, asked.expires_at) if asks and asked is not None else now + WINDOW_S,
        )
        store.add(unit.connection, delivery, message_of(event, type_, asked))


def type_of(event: Event) -> str | None:
    """The message type of an event; None if it is not delivered."""
    return str(event.type) if event.type in DELIVERABLE_TYPES else None


def message_of(event: Event, type_: str, asked: ApprovalSnapshot | None) -> Message:
    """The bounded message for an event."""
    omitted = [name for name, value in event.payload.items() if _size(value) > MAX_FIELD_BYTES]
    data: dict[str, Any] = {
        "session_id": event.trace.session_id,
        "task_id": event.trace.task_id,
        "seq": event.seq,
        "payload": {name: value for name, value in event.payload.items() if name not in omitted},
    }
    if omitted:
        data["omitted"] = omitted
    if asked is not None:
        shown = {
            name: value for name, value in asked.shown.items() if name == "input" or _size(value) <= MAX_FIELD_BYTES
        }
        if "preview" in asked.shown and "preview" not in shown:
            shown["preview"] = _shorten_preview(asked.shown["preview"])
            data["omitted"] = [*omitted, "approval.preview"]
        if left_out := [f"approval.{name}" for name in _LONG_FIELDS if name in asked.shown and name not in shown]:
            data["omitted"] = [*data.get("omitted", omitted), *left_out]
        if _size(shown.get("input")) > MAX_INPUT_BYTES:
            del shown["input"]
            data["omitted"] = [*data.get("omitted", omitted), "approval.input"]
        data["approval"] = {**shown, "digest": asked.digest, "expires_at": asked.expires_at}
        if asked.progress:
            data["approval"]["progress"] = asked.progress
    return Message(type=type_, timestamp=event.time, data=data)


def _shorten_preview(preview: Any) -> Any:
    """The preview without long texts and with its first files; the approval page shows all of it."""
    if not isinstance(preview, dict):
        return preview
    files = preview.get("files") or []
    few = {name: value for name, value in preview.items() if _size(value) <= MAX_PREVIEW_TEXT_BYTES}
    kept = [file for file in files[:MAX_PREVIEW_FILES] if _size(file) <= MAX_PREVIEW_TEXT_BYTES]
    left = int(preview.get("files_left_out", 0)) + len(files) - len(kept)
    return {**few, "files": kept, **({"files_left_out": left} if left else {})}


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
