"""The Prometheus metrics page: current state from the database, and metrics of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from codesdk.hosts import HostUnknown
from codesdk.hosts import store as host_store
from codesdk.metrics import call_statistics, current_state, store
from codesdk.storage.database import Database
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.statistics import store as statistics
from codesdk.toolcalls.statistics.denial_counts import DenialCounts


class MetricsExporter:
    """Reads the database at each scrape. Thread-safe."""

    def __init__(
        self, database: Database, refusals: DenialCounts, policy_problems: Callable[[], int] = lambda: 0
    ) -> None:
        """`policy_problems`: number of policy layers whose files or versions this process refuses."""
        self._database = database
        self._refusals = refusals
        self._policy_problems = policy_problems
        self._process = ProcessCollector(registry=None)
        self._version = version("codesdk")

    def page(self, caller: Principal) -> bytes:
        """All metrics in Prometheus' text format, version 0.0.4.

        Raises:
            Forbidden: the caller's reach is one tenant, or its role may not read metrics.
            StorageUnavailable: the database does not answer.
        """
        target = Target(tenant_id=caller.tenant_id)
        require(decide_access(caller, Action.METRICS_READ, target), HostUnknown("There are no such metrics."))
        return generate_latest(_StaticCollector([*self._metrics(caller), *self._process.collect()]))

    def _metrics(self, caller: Principal) -> Iterator[Metric]:
        yield from current_state.build_metrics(self._version)
        yield from current_state.policy_metrics(self._policy_problems())
        yield from current_state.refusal_metrics(self._refusals.totals(caller))
        with self._database.read() as connection:
            hosts = host_store.list_hosts(connection)
            calls = {host.name: store.calls_of(connection, host.id) for host in hosts}
            sandboxes = {host.name: store.sandboxes_of(connection, host.id) for host in hosts}
            found = store.installation(connection)
            rows = statistics.all_buckets(connection)
        yield from call_statistics.call_statistics_metrics(rows, {host.id: host.name for host in hosts})
        yield from current_state.open_call_metrics(calls)
        yield from current_state.host_metrics(hosts)
        yield from current_state.sandbox_metrics(sandboxes)
        yield from current_state.installation_metrics(found)


class _StaticCollector:
    """Adapter for `generate_latest`."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        """The metrics."""
        return self._metrics
