"""Limits the work that one call causes in the API or the worker, in units that don't depend on the machine."""

from __future__ import annotations


class WorkBudget:
    """Counts work in units that its user chooses (characters, comparisons), over all parts of a call.

    A bound for each part isn't enough, because an agent can send many parts. A budget should last about a second at most:
    the code that spends it checks neither cancels nor deadlines.
    """

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> bool:
        """Take these units. Returns False once more were taken than there were."""
        self.left -= units
        return self.left >= 0
