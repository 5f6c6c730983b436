"""An audit entry, and the hashes that chain entries and events. Pure."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.model import FrozenModel

INSTALLATION = "installation"
"""The chain of what is done to no single tenant. Every other chain is called by its tenant's id."""


class AuditAction(StrEnum):
    """What can be done that the audit keeps."""

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
    POLICY_PROMOTED = "policy.promoted"
    POLICY_ROLLED_BACK = "policy.rolled_back"
    POLICY_UNPINNED = "policy.unpinned"
    POLICY_SHADOW = "policy.shadow"
    POLICY_SHADOW_ENDED = "policy.shadow_ended"


class AuditRecord(FrozenModel):
    """Something that was done, before it has its place."""

    chain: str
    """A tenant's id, or `installation`."""
    time: str
    """RFC 3339, UTC."""
    act: str
    """What was done."""
    actor: str
    """Who did it: a principal's id, or the part of the product that acts by itself."""
    target: str
    """To what."""
    details: dict[str, Any]
    """What more there is to say; never a secret."""


class Entry(AuditRecord):
    """A deed in its chain."""

    number: int
    """Dense from 1 within the chain."""
    hash: str
    """Of all of this and of the hash of the entry before."""


def entry_hash(deed: AuditRecord, number: int, before: str) -> str:
    """What the entry's hash must be; `before` is empty for the first of its chain."""
    said = deed.model_dump(include=set(AuditRecord.model_fields))
    return content_hash({**said, "number": number, "before": before})


def event_hash(before: str, seq: int, time: str, type_: str, body: str) -> str:
    """The hash of a log up to this event, as it is stored; `before` is empty for the first."""
    # None of the parts before the last can hold a line break, so no two logs give the same text.
    return "sha256:" + hashlib.sha256(f"{before}\n{seq}\n{time}\n{type_}\n{body}".encode()).hexdigest()
