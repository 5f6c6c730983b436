"""What would change: the same calls under two bundles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codesdk.domain.decisions import Decision, Effect
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation.query import PolicyQuery, evaluate
from codesdk.policy.facts import ToolFacts

MAX_CHANGES = 200
"""Changed calls that are kept whole; all are counted."""


@dataclass(frozen=True)
class DecisionChange:
    """A call that is decided in another way."""

    trial: PolicyQuery
    before: Decision
    after: Decision

    @property
    def name(self) -> str:
        """`allow→deny`."""
        return f"{self.before.effect}→{self.after.effect}"


@dataclass(frozen=True)
class Comparison:
    """Of two bundles over some calls."""

    matrix: Mapping[tuple[Effect, Effect], int]
    """How many calls went from one effect to the other, those that stayed among them."""
    changes: tuple[DecisionChange, ...]
    """The first `MAX_CHANGES`, one for each call of its kind."""

    @property
    def total(self) -> int:
        """Calls that were judged."""
        return sum(self.matrix.values())

    @property
    def new_allows(self) -> int:
        """Calls that the second bundle allows and the first did not."""
        return sum(count for (before, after), count in self.matrix.items() if after is Effect.ALLOW is not before)


def compare_bundles(
    trials: Iterable[PolicyQuery], tools: Mapping[str, ToolFacts], before: Bundle, after: Bundle
) -> Comparison:
    """Judge every call by either."""
    return compare_calls(trials, tools, lambda _: before, lambda _: after)


def compare_calls(
    trials: Iterable[PolicyQuery],
    tools: Mapping[str, ToolFacts],
    before: Callable[[PolicyQuery], Bundle],
    after: Callable[[PolicyQuery], Bundle],
) -> Comparison:
    """Judge every call twice, each by the bundles that hold for it."""
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
