"""Self-check: probes that show what a sandbox on this host allows and prevents.

They use only the sandbox port, so they run on every implementation. `suite` lists and runs them.
"""

from codesdk.sandbox.selfcheck.context import Plan, ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed
from codesdk.sandbox.selfcheck.probe import Group, Outcome, Probe, Status
from codesdk.sandbox.selfcheck.suite import PROBES, check, run

__all__ = ["PROBES", "Group", "Outcome", "Plan", "Probe", "ProbeContext", "ProbeFailed", "Status", "check", "run"]
