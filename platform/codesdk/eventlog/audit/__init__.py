"""The audit trail: tamper-evident chains of entries that also seal sessions' logs (ADR 23)."""

from codesdk.eventlog.audit.entry import INSTALLATION, AuditAction, Entry
from codesdk.eventlog.audit.trail import AuditTrail

__all__ = ["INSTALLATION", "AuditAction", "AuditTrail", "Entry"]
