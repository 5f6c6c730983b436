"""The series of what has ended: how many calls, and how long they took. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from codesdk.domain.ids import HostId
from codesdk.metrics.series import counter
from codesdk.sandbox.port import ExitKind
from codesdk.toolcalls import lost
from codesdk.toolcalls.tallies import BOUNDS_MS, FAILED, OK, Series
from codesdk.toolcalls.tally_store import Tally

MILLI = 1000
EXPECTED = (OK, FAILED, lost.CODE, *(kind.upper() for kind in ExitKind if kind is not ExitKind.EXITED))
"""Codes that stand on the page before any call had them: of a series that begins with its first event, no rate is known."""
ANSWERS = ("approved", "rejected", "expired")
Key = tuple[str, ...]
"""Values of labels."""


def of_ends(tallies: Sequence[Tally], hosts: Mapping[HostId, str]) -> Iterator[Metric]:
    """Counters and histograms of all that was tallied; `hosts`: their names."""
    here = [tally._replace(host=hosts[HostId(tally.host)]) for tally in tallies if HostId(tally.host) in hosts]
    names = list(hosts.values())
    codes = Counter(dict.fromkeys(EXPECTED, 0))
    for tally in _of(tallies, Series.RUN):
        codes[tally.label] += tally.calls
    yield counter(
        "codesdk_calls_completed",
        "Attempts of tool calls that had started and have ended, by the code of their result; OK: no error.",
        ["code"],
        (([code], calls) for code, calls in codes.items()),
    )
    yield _histogram(
        "codesdk_call_queue_wait_seconds",
        "How long calls that ran were queued before.",
        ["host"],
        Series.QUEUE,
        _by(_of(here, Series.QUEUE), lambda tally: (tally.host,), [(name,) for name in names]),
    )
    yield _histogram(
        "codesdk_call_run_duration_seconds",
        "How long they ran, until their end was recorded.",
        ["host", "outcome"],
        Series.RUN,
        _by(
            _of(here, Series.RUN),
            lambda tally: (tally.host, "ok" if tally.label == OK else "error"),
            [(name, outcome) for name in names for outcome in ("ok", "error")],
        ),
    )
    yield _histogram(
        "codesdk_approval_wait_seconds",
        "How long questions waited until they were settled.",
        ["outcome"],
        Series.ANSWER,
        _by(_of(tallies, Series.ANSWER), lambda tally: (tally.label,), [(how,) for how in ANSWERS]),
    )


def _of(tallies: Iterable[Tally], series: Series) -> list[Tally]:
    return [tally for tally in tallies if tally.series == series.value]


def _by(tallies: Iterable[Tally], key: Callable[[Tally], Key], expected: Iterable[Key]) -> dict[Key, list[Tally]]:
    """`expected`: keys that stand there in any case."""
    found: dict[Key, list[Tally]] = {wanted: [] for wanted in expected}
    for tally in tallies:
        found.setdefault(key(tally), []).append(tally)
    return found


def _histogram(
    name: str, what: str, labels: Sequence[str], series: Series, found: Mapping[Key, Sequence[Tally]]
) -> Metric:
    family = HistogramMetricFamily(name, what, labels=labels)
    bounds = BOUNDS_MS[series]
    for key, tallies in found.items():
        # A bucket of a version that had other bounds counts from the next bound above it on.
        calls = [
            sum(tally.calls for tally in tallies if low < tally.upto_ms <= high)
            for low, high in zip((0, *bounds), bounds, strict=False)
        ]
        total = sum(tally.calls for tally in tallies)
        buckets = [(str(high / MILLI), float(count)) for high, count in zip(bounds, accumulate(calls), strict=True)]
        family.add_metric(
            list(key), [*buckets, ("+Inf", float(total))], sum_value=sum(tally.seconds for tally in tallies)
        )
    return family
