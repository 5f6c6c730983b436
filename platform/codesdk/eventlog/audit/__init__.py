"""The audit: chains of entries that cannot be changed unnoticed, and sessions' logs sealed into them (ADR on the audit)."""

from codesdk.eventlog.audit.entry import INSTALLATION, Act, Entry
from codesdk.eventlog.audit.trail import Trail

__all__ = ["INSTALLATION", "Act", "Entry", "Trail"]
