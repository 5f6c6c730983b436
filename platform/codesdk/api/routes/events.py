"""A session's log over HTTP, in pages or as a stream."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Query, Request, Response
from starlette.responses import JSONResponse

from codesdk.api.access import Caller, ServicesDep, access_recheck, guarded_router
from codesdk.api.cursor import CURSOR_PATTERN, StartPosition, encode_cursor, start_position
from codesdk.api.event_stream import CallEnd, EventStream, OpenStreams
from codesdk.bootstrap import Services
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog.log import PAGE_SIZE, EventBatch
from codesdk.tenancy.access import Action

router = guarded_router()


class EventPage(FrozenModel):
    """Events, in order. Pass `next` as `after` for the next page."""

    events: list[Event]
    next: str
    """Cursor after this page's last event."""
    head: int
    """The log's newest `seq`."""
    resync: str | None = None
    """Why the cursor couldn't be used, if so. The page then starts at the beginning."""


@router.get(
    "/v1/sessions/{session_id}/events",
    response_model=EventPage,
    responses={200: {"content": {"text/event-stream": {}}}},
)
def read_events(
    request: Request,
    session_id: str,
    caller: Caller,
    services: ServicesDep,
    *,
    after: Annotated[str | None, Query(pattern=CURSOR_PATTERN)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_SIZE)] = 100,
) -> Response:
    """Read events after a cursor. With `Accept: text/event-stream`, stream them; `Last-Event-ID` resumes the stream."""
    session = services.sessions.find(caller.tenant_id, session_id).id
    epoch, head = services.log.position(session)
    if "text/event-stream" in request.headers.get("accept", ""):
        begin = start_position(request.headers.get("last-event-id", after), epoch, head)
        # A reader that was disconnected by an unreadable event gets the reason as a status when it reconnects.
        _events_or_raise(services.log.page(session, begin.after, 1))
        return open_event_stream(request, services, caller.tenant_id, session, begin=begin, head=head)
    begin = start_position(after, epoch, head)
    events = _events_or_raise(services.log.page(session, begin.after, limit))
    page = EventPage(
        events=events,
        next=encode_cursor(epoch, events[-1].seq if events else begin.after),
        head=head,
        resync=begin.resync,
    )
    return JSONResponse(page.model_dump(mode="json", exclude_none=True))


def _events_or_raise(page: EventBatch) -> list[Event]:
    """Return the readable events. Raise the fault only if there are none."""
    if page.fault is not None and not page.events:
        raise page.fault
    return page.events


def open_event_stream(
    request: Request,
    services: Services,
    tenant: TenantId,
    session: SessionId,
    *,
    begin: StartPosition,
    head: int,
    until: CallEnd | None = None,
) -> EventStream:
    """Create the stream of a session's events for the request's caller, who may read them. Arguments: see `EventStream`."""
    readmitted = access_recheck(request, Action.EVENTS_READ)
    return EventStream(
        log=services.log,
        tail=services.tail,
        readers=cast("OpenStreams", request.app.state.readers),
        tenant=tenant,
        session=session,
        begin=begin,
        head=head,
        recheck=lambda: services.sessions.find(readmitted().tenant_id, session),
        until=until,
    )
