"""Of a session.

Every log begins with `session.created`.
"""

from __future__ import annotations

from typing import ClassVar

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import EventType
from codesdk.domain.ids import SessionId
from codesdk.domain.payloads.payload import Payload


class SessionCreated(Payload):
    """The first event of each log."""

    event_type: ClassVar[EventType] = EventType.SESSION_CREATED

    contract_version: str
    """Version of the runtime adapter contract that the log was written for."""
    permission_mode: PermissionMode
    """How eager the session is to ask people."""
    labels: dict[str, str]
    """As they were given when it was opened."""
    profile: str
    """Name of the sandbox profile."""
    image: str
    """Id of the sandbox image, `sha256:…`."""
    opened_from: SessionId | None = None
    """The session whose last snapshot its workspace starts from; missing where there is none."""
    policy_hash: str | None = None
    """Of the rules that the session was opened with; missing where it has none of its own."""
