"""Events about a session's sandbox."""

from __future__ import annotations

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import PrincipalId
from codesdk.domain.payloads import Payload
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import Draft
from codesdk.sandbox.store import SandboxRow
from codesdk.toolcalls import history


def draft_of(row: SandboxRow, payload: Payload) -> Draft:
    """An event of the session whose sandbox that is."""
    subject = Subject(
        tenant_id=row.tenant_id,
        principal_id=PrincipalId(row.principal_id),
        session_id=row.session_id,
        permission_mode=PermissionMode(row.permission_mode),
        runtime=row.runtime,
    )
    return history.draft(subject, payload)
