"""Upcasts old events to the current shape when they're read. Stored logs are never rewritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from codesdk.domain.events import SCHEMA_VERSION, Event, EventUnreadable
from codesdk.errors import ExitCode, Fault

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts an event to the next version. Pure; leaves `schema_version` unchanged."""

UPCASTERS: Mapping[int, Upcaster] = {}
"""By the version that they read. Raising SCHEMA_VERSION to N + 1 requires an entry for N and a fixture of version N."""


class SchemaTooNew(Fault):
    """The event was written by a later version of CodeSDK."""

    code = "EVENT_SCHEMA_TOO_NEW"
    exit_code = ExitCode.DATA


def read_event(stored: Mapping[str, Any]) -> Event:
    """Convert a stored event to the current shape. Unknown keys of the envelope are dropped.

    Raises:
        SchemaTooNew: a later version wrote it.
        EventUnreadable: it is not an event.
    """
    current = upcast(stored, SCHEMA_VERSION, UPCASTERS)
    try:
        return Event.model_validate(current, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise EventUnreadable(f"{_event_label(stored)} cannot be read: {place}: {first['msg']}.") from error


def upcast(stored: Mapping[str, Any], latest: int, upcasters: Mapping[int, Upcaster]) -> dict[str, Any]:
    """Convert the event to the shape of version `latest`.

    Raises:
        SchemaTooNew: its version is later than `latest`.
        EventUnreadable: it has no valid version, or an upcaster is missing.
    """
    version = stored.get("schema_version")
    if type(version) is not int or version < 1:
        raise EventUnreadable(f"{_event_label(stored)} has no schema version.")
    if version > latest:
        raise SchemaTooNew(
            f"{_event_label(stored)} has schema version {version}; this CodeSDK reads up to {latest}.",
            advice="Read this log with the version of CodeSDK that wrote it, or a later one; nothing was changed.",
        )
    event = dict(stored)
    for step in range(version, latest):
        if step not in upcasters:
            raise EventUnreadable(f"{_event_label(stored)} has schema version {version}, which can't be upgraded.")
        event = {**upcasters[step](event), "schema_version": step + 1}
    return event


def _event_label(stored: Mapping[str, Any]) -> str:
    seq = stored.get("seq")
    return f"Event {seq}" if isinstance(seq, int) else "An event"
