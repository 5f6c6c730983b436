"""Limits the work that one call causes in the API or the worker, in units that don't depend on the machine."""

from __future__ import annotations


class WorkBudget:
    """Counts work in units that its user chooses (characters, comparisons), over all parts of a call.

    A bound for each part isn't enough: an agent can send many parts. Nothing has to look at cancels and deadlines
    meanwhile, because each budget is spent in about half a second at most.
    """

    def __init__(self, units: int) -> None:
        self.left = units

    def spend(self, units: int) -> bool:
        """Take these units. Returns False once more were taken than there were."""
        self.left -= units
        return self.left >= 0
