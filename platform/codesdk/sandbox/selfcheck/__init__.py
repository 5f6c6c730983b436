"""Probes that show on the reader's own host what a sandbox does and does not let happen.

They use the sandbox port only, so they hold for every implementation. `suite` has them all and runs them.
"""

from codesdk.sandbox.selfcheck.context import Plan, ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeFailed
from codesdk.sandbox.selfcheck.probe import Group, Outcome, Probe, Status
from codesdk.sandbox.selfcheck.suite import PROBES, check, run

__all__ = ["PROBES", "Group", "Outcome", "Plan", "Probe", "ProbeContext", "ProbeFailed", "Status", "check", "run"]
