"""Events about a session's sandbox."""

from __future__ import annotations

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import PrincipalId
from codesdk.domain.payloads import Payload
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import EventDraft
from codesdk.sandbox.records.store import SandboxRow
from codesdk.toolcalls.records import call_events


def sandbox_event(row: SandboxRow, payload: Payload) -> EventDraft:
    """Draft an event for the sandbox's session."""
    subject = Subject(
        tenant_id=row.tenant_id,
        principal_id=PrincipalId(row.principal_id),
        session_id=row.session_id,
        permission_mode=PermissionMode(row.permission_mode),
        runtime=row.runtime,
    )
    return call_events.draft(subject, payload)
