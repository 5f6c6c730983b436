"""Sums a session's usage without counting twice: runtimes repeat a report for each part of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from codesdk.domain.model import FrozenModel
from codesdk.domain.payloads import CostSource, UsageReported, UsageScope

USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
    "duration_ms",
)


class Usage(FrozenModel):
    """Total usage. A value that was never reported is missing, not zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    """Milliseconds of the model's work."""
    cost_is_estimated: bool = False
    """Some of `cost_usd` was estimated, not reported by the provider."""


class UsageMeter:
    """Sums usage reports, in the order of the log."""

    def __init__(self) -> None:
        self._messages: dict[str, dict[str, UsageReported]] = {}
        self._tasks: dict[str, UsageReported] = {}

    def add(self, task: str, seq: int, report: UsageReported) -> None:
        """Add a report. The last report of a message counts; the last of a task replaces its messages'."""
        messages = self._messages.setdefault(task, {})
        if report.scope is UsageScope.TASK:
            self._tasks[task] = report
        else:
            messages[report.message_id or f"event {seq}"] = report

    def total(self) -> Usage:
        """Return the sum over all tasks."""
        counted: list[UsageReported] = []
        sums: dict[str, float | None] = dict.fromkeys(USAGE_FIELDS)
        for task, messages in self._messages.items():
            whole = self._tasks.get(task)
            for name in USAGE_FIELDS:
                reports = [whole] if whole is not None and getattr(whole, name) is not None else list(messages.values())
                sums[name] = _sum([sums[name], *(getattr(report, name) for report in reports)])
            counted += [whole] if whole is not None and whole.cost_usd is not None else messages.values()
        estimated = any(r.cost_usd is not None and r.cost_source is not CostSource.REPORTED for r in counted)
        return Usage.model_validate({**sums, "cost_is_estimated": estimated})


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
