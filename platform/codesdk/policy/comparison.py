"""What would change: the same calls under two bundles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codesdk.domain.decisions import Decision, Effect
from codesdk.policy.bundle import Bundle
from codesdk.policy.facts import ToolFacts
from codesdk.policy.trial import Trial, judge

SHOWN = 200
"""Changed calls that are kept whole; all are counted."""


@dataclass(frozen=True)
class Change:
    """A call that is decided in another way."""

    trial: Trial
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
    changes: tuple[Change, ...]
    """The first `SHOWN`, one for each call of its kind."""

    @property
    def total(self) -> int:
        """Calls that were judged."""
        return sum(self.matrix.values())

    @property
    def new_allows(self) -> int:
        """Calls that the second bundle allows and the first did not."""
        return sum(count for (before, after), count in self.matrix.items() if after is Effect.ALLOW is not before)


def compare_bundles(
    trials: Iterable[Trial], tools: Mapping[str, ToolFacts], before: Bundle, after: Bundle
) -> Comparison:
    """Judge every call by either."""
    return compare_calls(trials, tools, lambda _: before, lambda _: after)


def compare_calls(
    trials: Iterable[Trial],
    tools: Mapping[str, ToolFacts],
    before: Callable[[Trial], Bundle],
    after: Callable[[Trial], Bundle],
) -> Comparison:
    """Judge every call twice, each by the bundles that hold for it."""
    matrix: Counter[tuple[Effect, Effect]] = Counter()
    changes: list[Change] = []
    seen: set[tuple[str, str, str]] = set()
    for trial in trials:
        one, other = judge(trial, tools, before(trial)), judge(trial, tools, after(trial))
        matrix[one.effect, other.effect] += 1
        kind = (trial.tool, str(trial.input), f"{one.effect}{other.effect}")
        if one.effect is not other.effect and kind not in seen and len(changes) < SHOWN:
            seen.add(kind)
            changes.append(Change(trial, one, other))
    return Comparison(matrix, tuple(changes))
