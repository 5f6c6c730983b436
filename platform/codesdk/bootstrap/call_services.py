"""Wires the services of tool calls."""

from __future__ import annotations

from codesdk.approvals import ApprovalService
from codesdk.artifacts import ArtifactService
from codesdk.domain.ids import Ids
from codesdk.domain.quotas import Quotas
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.policy import BundleProvider
from codesdk.policy.rollout.shadow import ShadowEvaluator
from codesdk.registry import RegistryProvider
from codesdk.settings import Settings
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.deferred import DeferredApprovals
from codesdk.toolcalls.approval.flow import ApprovalFlow
from codesdk.toolcalls.decision.call_decision import ApprovalLimits, CallDecisions
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.retries.lost_calls import LostAttempts
from codesdk.toolcalls.retries.retry import Retries


class CallServices:
    """What submits calls, gets them approved, and ends lost attempts."""

    def __init__(
        self,
        settings: Settings,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        approval_service: ApprovalService,
        log: EventLog,
        artifacts: ArtifactService,
        writer: Writer,
        wakeups: Wakeups,
        ids: Ids,
        quotas: Quotas[Unit],
        shadow: ShadowEvaluator,
    ) -> None:
        limits = ApprovalLimits(
            per_minute=settings.asks_per_minute,
            per_minute_of_tenant=settings.asks_per_minute_of_tenant,
            waiting=settings.asks_waiting,
        )
        decisions = CallDecisions(bundles, approval_service, limits)
        self.approval_flow = ApprovalFlow(approval_service, log, writer, wakeups)
        self.deferred_approvals = DeferredApprovals(
            registry=registry,
            decisions=decisions,
            approvals=self.approval_flow,
            log=log,
            writer=writer,
            wakeups=wakeups,
            ids=ids,
        )
        self.pipeline = Pipeline(
            registry=registry,
            decisions=decisions,
            approvals=self.approval_flow,
            deferred=self.deferred_approvals,
            approval_service=approval_service,
            log=log,
            artifacts=artifacts,
            writer=writer,
            wakeups=wakeups,
            ids=ids,
            quotas=quotas,
            shadow=shadow,
        )
        self.lost_attempts = LostAttempts(
            log,
            Retries(
                registry=registry,
                bundles=bundles,
                approval_service=approval_service,
                log=log,
                quotas=quotas,
                wakeups=wakeups,
            ),
        )
