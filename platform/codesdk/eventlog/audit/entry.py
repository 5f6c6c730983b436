"""An audit entry, and the hashes that chain entries and events. Pure."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.model import FrozenModel

INSTALLATION = "installation"
"""The chain for actions that concern no single tenant. Every other chain is named by its tenant's id."""


class AuditAction(StrEnum):
    """The actions that the audit trail records."""

    INSTALLATION_FOUNDED = "installation.founded"
    INSTALLATION_RESTORED = "installation.restored"
    TENANT_CREATED = "tenant.created"
    TENANT_SUSPENDED = "tenant.suspended"
    TENANT_RESUMED = "tenant.resumed"
    TENANT_WEIGHED = "tenant.weighed"
    TENANT_YOLO_SET = "tenant.yolo_set"
    QUOTAS_SET = "quotas.set"
    PRINCIPAL_CREATED = "principal.created"
    PRINCIPAL_REGROUPED = "principal.regrouped"
    PRINCIPAL_ROLES_SET = "principal.roles_set"
    PRINCIPAL_DISABLED = "principal.disabled"
    KEY_CREATED = "key.created"
    KEY_REVOKED = "key.revoked"
    ARTIFACT_DELETED = "artifact.deleted"
    SESSION_IMPORTED = "session.imported"
    SESSION_REMOVED = "session.removed"
    SESSION_SEALED = "session.sealed"
    HOST_DRAINED = "host.drained"
    HOST_ACTIVATED = "host.activated"
    HOST_LOST = "host.lost"
    POLICY_IN_FORCE = "policy.in_force"
    POLICY_REFUSED = "policy.refused"
    POLICY_PROMOTED = "policy.promoted"
    POLICY_ROLLED_BACK = "policy.rolled_back"
    POLICY_UNPINNED = "policy.unpinned"
    POLICY_SHADOW = "policy.shadow"
    POLICY_SHADOW_ENDED = "policy.shadow_ended"


class AuditRecord(FrozenModel):
    """An audited action that has no number in its chain yet."""

    chain: str
    """A tenant's id, or `installation`."""
    time: str
    """RFC 3339, UTC."""
    act: str
    """The action."""
    actor: str
    """Who did it: a principal's id, or the component that acted by itself."""
    target: str
    """The id of what it was done to."""
    details: dict[str, Any]
    """Further facts. Never contains a secret."""


class Entry(AuditRecord):
    """An audit entry with its place in the chain."""

    number: int
    """Dense, from 1, within the chain."""
    hash: str
    """Hash over all fields and the previous entry's hash."""


def entry_hash(deed: AuditRecord, number: int, before: str) -> str:
    """Compute the entry's hash. `before`: the previous entry's hash, empty for the first of a chain."""
    said = deed.model_dump(include=set(AuditRecord.model_fields))
    return content_hash({**said, "number": number, "before": before})


def event_hash(before: str, seq: int, time: str, type_: str, body: str) -> str:
    """Compute the hash of a log up to and including this stored event. `before` is empty for the first event."""
    # Only the last part can contain a line break, so two different logs never give the same text.
    return "sha256:" + hashlib.sha256(f"{before}\n{seq}\n{time}\n{type_}\n{body}".encode()).hexdigest()
