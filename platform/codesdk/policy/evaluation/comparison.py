"""Compares the decisions of two bundles on the same calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codesdk.domain.decisions import Decision, Effect
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation.query import PolicyQuery, evaluate
from codesdk.policy.facts import ToolFacts

MAX_CHANGES = 200
"""Changed calls kept in full; all are counted."""


@dataclass(frozen=True)
class DecisionChange:
    """A call whose decision differs."""

    trial: PolicyQuery
    before: Decision
    after: Decision

    @property
    def name(self) -> str:
        """`allow→deny`."""
        return f"{self.before.effect}→{self.after.effect}"


@dataclass(frozen=True)
class Comparison:
    """Result of comparing two bundles over a set of calls."""

    matrix: Mapping[tuple[Effect, Effect], int]
    """Number of calls for each pair of effects, unchanged ones included."""
    changes: tuple[DecisionChange, ...]
    """The first `MAX_CHANGES`, without duplicates."""

    @property
    def total(self) -> int:
        """Number of calls."""
        return sum(self.matrix.values())

    @property
    def new_allows(self) -> int:
        """Calls that the second bundle allows and the first did not."""
        return sum(count for (before, after), count in self.matrix.items() if after is Effect.ALLOW is not before)


def compare_bundles(
    trials: Iterable[PolicyQuery], tools: Mapping[str, ToolFacts], before: Bundle, after: Bundle
) -> Comparison:
    """Decide every call under both bundles."""
    return compare_calls(trials, tools, lambda _: before, lambda _: after)


def compare_calls(
    trials: Iterable[PolicyQuery],
    tools: Mapping[str, ToolFacts],
    before: Callable[[PolicyQuery], Bundle],
    after: Callable[[PolicyQuery], Bundle],
) -> Comparison:
    """Decide every call twice, under the bundles chosen for it."""
    matrix: Counter[tuple[Effect, Effect]] = Counter()
    changes: list[DecisionChange] = []
    seen: set[tuple[str, str, str]] = set()
    for trial in trials:
        one, other = evaluate(trial, tools, before(trial)), evaluate(trial, tools, after(trial))
        matrix[one.effect, other.effect] += 1
        kind = (trial.tool, str(trial.input), f"{one.effect}{other.effect}")
        if one.effect is not other.effect and kind not in seen and len(changes) < MAX_CHANGES:
            seen.add(kind)
            changes.append(DecisionChange(trial, one, other))
    return Comparison(matrix, tuple(changes))
