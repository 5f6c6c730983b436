"""Metrics of completed calls: counts and durations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from codesdk.domain.ids import HostId
from codesdk.metrics.current_state import counter
from codesdk.sandbox.port import ExitKind
from codesdk.toolcalls.retries import lost_calls
from codesdk.toolcalls.statistics.store import BOUNDS_MS, FAILED, OK, HistogramBucket, Series

MILLI = 1000
INITIAL_CODES = (
    OK,
    FAILED,
    lost_calls.WORKER_LOST,
    *(kind.upper() for kind in ExitKind if kind is not ExitKind.EXITED),
)
"""Codes exported from the start with 0: a series that begins with its first event has no rate."""
APPROVAL_OUTCOMES = ("approved", "rejected", "expired")
LabelValues = tuple[str, ...]
"""Values of labels."""


def call_statistics_metrics(rows: Sequence[HistogramBucket], hosts: Mapping[HostId, str]) -> Iterator[Metric]:
    """Counters and histograms from stored buckets; `hosts`: names by id."""
    here = [row._replace(host=hosts[HostId(row.host)]) for row in rows if HostId(row.host) in hosts]
    names = list(hosts.values())
    codes = Counter(dict.fromkeys(INITIAL_CODES, 0))
    for row in _in_series(rows, Series.RUN):
        codes[row.label] += row.calls
    yield counter(
        "codesdk_calls_completed",
        "Attempts of tool calls that had started and have ended, by the code of their result; OK: no error.",
        ["code"],
        (([code], calls) for code, calls in codes.items()),
    )
    yield _histogram(
        "codesdk_call_queue_wait_seconds",
        "Time that calls were queued before they ran.",
        ["host"],
        Series.QUEUE,
        _group_by(_in_series(here, Series.QUEUE), lambda row: (row.host,), [(name,) for name in names]),
    )
    yield _histogram(
        "codesdk_call_run_duration_seconds",
        "Duration of calls, until their end was recorded.",
        ["host", "outcome"],
        Series.RUN,
        _group_by(
            _in_series(here, Series.RUN),
            lambda row: (row.host, "ok" if row.label == OK else "error"),
            [(name, outcome) for name in names for outcome in ("ok", "error")],
        ),
    )
    yield _histogram(
        "codesdk_approval_wait_seconds",
        "Time until approvals were decided.",
        ["outcome"],
        Series.ANSWER,
        _group_by(_in_series(rows, Series.ANSWER), lambda row: (row.label,), [(how,) for how in APPROVAL_OUTCOMES]),
    )


def _in_series(rows: Iterable[HistogramBucket], series: Series) -> list[HistogramBucket]:
    return [row for row in rows if row.series == series.value]


def _group_by(
    rows: Iterable[HistogramBucket], key: Callable[[HistogramBucket], LabelValues], expected: Iterable[LabelValues]
) -> dict[LabelValues, list[HistogramBucket]]:
    """`expected`: keys to include even without buckets."""
    found: dict[LabelValues, list[HistogramBucket]] = {wanted: [] for wanted in expected}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _histogram(
    name: str, what: str, labels: Sequence[str], series: Series, found: Mapping[LabelValues, Sequence[HistogramBucket]]
) -> Metric:
    family = HistogramMetricFamily(name, what, labels=labels)
    bounds = BOUNDS_MS[series]
    for key, rows in found.items():
        # A bucket from a version with other bounds counts toward the next higher bound.
        calls = [
            sum(row.calls for row in rows if low < row.upto_ms <= high)
            for low, high in zip((0, *bounds), bounds, strict=False)
        ]
        total = sum(row.calls for row in rows)
        buckets = [(str(high / MILLI), float(count)) for high, count in zip(bounds, accumulate(calls), strict=True)]
        family.add_metric(list(key), [*buckets, ("+Inf", float(total))], sum_value=sum(row.seconds for row in rows))
    return family
