"""Session events.

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
    """Permission mode: when the session asks for approval."""
    labels: dict[str, str]
    """The labels given when it was opened."""
    profile: str
    """Name of the sandbox profile."""
    image: str
    """Id of the sandbox image, `sha256:…`."""
    opened_from: SessionId | None = None
    """The session whose last snapshot the workspace starts from, if any."""
    policy_hash: str | None = None
    """Hash of the session's own rules, if it has any."""
