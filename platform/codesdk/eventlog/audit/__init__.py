"""The audit: chains of entries that cannot be changed unnoticed, and sessions' logs sealed into them (ADR on the audit)."""

from codesdk.eventlog.audit.entry import INSTALLATION, AuditAction, Entry
from codesdk.eventlog.audit.trail import AuditTrail

__all__ = ["INSTALLATION", "AuditAction", "AuditTrail", "Entry"]
