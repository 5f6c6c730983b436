"""Metrics of the current state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from codesdk.domain.calls import DenialCode
from codesdk.hosts import HostRecord, HostState
from codesdk.metrics.store import HostCalls, InstallationTotals
from codesdk.sandbox.records.store import SandboxState

MILLI = 1000
Sample = tuple[Sequence[str], float]
"""Values of labels, and the sample."""


def build_metrics(version: str) -> Iterator[Metric]:
    """The running version."""
    yield gauge("codesdk_build_info", "Version of the API process; always 1.", ["version"], [([version], 1)])


def policy_metrics(problems: int) -> Iterator[Metric]:
    """Policy that is not in force though it should be."""
    yield gauge(
        "codesdk_policy_problems",
        "Policy layers whose files or pinned version this process refuses; the last valid ones are in force.",
        [],
        [([], problems)],
    )


def refusal_metrics(refused: Mapping[DenialCode, int]) -> Iterator[Metric]:
    """Calls that were refused."""
    yield counter(
        "codesdk_calls_refused",
        "Tool calls that did not run, by error code.",
        ["code"],
        (([code.value], calls) for code, calls in refused.items()),
    )


def open_call_metrics(calls: Mapping[str, HostCalls]) -> Iterator[Metric]:
    """Open calls by host name."""
    yield gauge(
        "codesdk_calls",
        "Tool calls that have not ended: waiting for approval, held behind another call of their session, queued, running.",
        ["host", "state"],
        (
            row
            for host, found in calls.items()
            for row in (
                ([host, "waiting"], found.waiting),
                ([host, "held"], found.held.number),
                ([host, "queued"], found.queued.number),
                ([host, "running"], found.running.number),
            )
        ),
    )
    yield gauge(
        "codesdk_oldest_call_age_seconds",
        "Age of the oldest call in that state; 0 if there is none.",
        ["host", "state"],
        (
            row
            for host, found in calls.items()
            for row in (
                ([host, "held"], found.held.oldest_s),
                ([host, "queued"], found.queued.oldest_s),
                ([host, "running"], found.running.oldest_s),
            )
        ),
    )


def host_metrics(hosts: Iterable[HostRecord]) -> Iterator[Metric]:
    """Hosts and their workers."""
    found = list(hosts)
    yield gauge(
        "codesdk_host_up",
        "1 while a worker serves the host; 0 after an orderly stop, or if the host is lost.",
        ["host"],
        (([host.name], not host.away and host.state is not HostState.LOST) for host in found),
    )
    yield gauge(
        "codesdk_host_state",
        "1 for the host's current state.",
        ["host", "state"],
        (([host.name, state.value], host.state is state) for host in found for state in HostState),
    )
    yield gauge(
        "codesdk_host_silent_seconds",
        "Time since the last heartbeat of the host's worker.",
        ["host"],
        (([host.name], host.silent_s) for host in found if host.silent_s is not None),
    )
    yield gauge(
        "codesdk_host_sessions",
        "Sessions that have a sandbox on the host.",
        ["host"],
        (([host.name], host.sessions) for host in found),
    )
    yield gauge(
        "codesdk_host_reserved_memory_bytes",
        "Memory and swap that the profiles of the host's sandboxes allow.",
        ["host"],
        (([host.name], host.reserved.memory_bytes) for host in found),
    )
    yield gauge(
        "codesdk_host_reserved_cpus",
        "CPUs that the profiles of the host's sandboxes allow.",
        ["host"],
        (([host.name], host.reserved.millicpus / MILLI) for host in found),
    )
    offered = [host.capacity for host in found]
    limits: tuple[tuple[str, str, list[float]], ...] = (
        ("sessions", "Sessions that the host takes", [has.sessions for has in offered]),
        ("memory_bytes", "Memory and swap that it gives its sandboxes", [has.memory_bytes for has in offered]),
        ("cpus", "CPUs that it gives its sandboxes", [has.millicpus / MILLI for has in offered]),
    )
    for name, what, amounts in limits:
        yield gauge(
            f"codesdk_host_capacity_{name}",
            f"{what}; no sample without a limit.",
            ["host"],
            (([host.name], amount) for host, amount in zip(found, amounts, strict=True) if amount),
        )


def sandbox_metrics(sandboxes: Mapping[str, Mapping[SandboxState, int]]) -> Iterator[Metric]:
    """Sandboxes by host, including pooled and throw-away ones."""
    yield gauge(
        "codesdk_sandboxes",
        "Sandboxes that still exist, by state.",
        ["host", "state"],
        (([host, state.value], count) for host, found in sandboxes.items() for state, count in found.items()),
    )


def installation_metrics(found: InstallationTotals) -> Iterator[Metric]:
    """Totals of the installation."""
    one = (
        ("codesdk_sessions_open", "Open sessions.", found.sessions),
        ("codesdk_approvals_open", "Pending approvals.", found.approvals.number),
        (
            "codesdk_oldest_approval_age_seconds",
            "Age of the oldest pending approval; 0 if there is none.",
            found.approvals.oldest_s,
        ),
        (
            "codesdk_webhook_deliveries_due",
            "Webhook messages that are due, to enabled endpoints.",
            found.deliveries.number,
        ),
        (
            "codesdk_oldest_webhook_delivery_age_seconds",
            "Time for which the oldest message has been due; 0 if none is.",
            found.deliveries.oldest_s,
        ),
    )
    for name, what, value in one:
        yield gauge(name, what, [], [([], value)])
    yield counter("codesdk_audit_entries", "Entries of all audit chains.", [], [([], found.audit_entries)])


def gauge(name: str, what: str, labels: Sequence[str], rows: Iterable[Sample]) -> Metric:
    """Create a gauge."""
    return _add_samples(GaugeMetricFamily(name, what, labels=labels), rows)


def counter(name: str, what: str, labels: Sequence[str], rows: Iterable[Sample]) -> Metric:
    """Create a counter. The library appends `_total` to its name."""
    return _add_samples(CounterMetricFamily(name, what, labels=labels), rows)


def _add_samples(
    family: GaugeMetricFamily | CounterMetricFamily, rows: Iterable[Sample]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in rows:
        family.add_metric(labels, float(value))
    return family
