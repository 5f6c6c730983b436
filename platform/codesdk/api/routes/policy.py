"""Policy over HTTP: the active rules, and trial evaluation."""

from __future__ import annotations

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.policy.evaluation.query import PolicyQuery, evaluate

router = guarded_router()


class RuleInForce(FrozenModel):
    """A rule of the caller's bundle."""

    id: str
    effect: Effect
    reason: str
    owner: str
    expires: str | None
    file: str
    line: int


class PolicyInForce(FrozenModel):
    """The bundle in force for the caller's tenant."""

    name: str
    hash: str
    layers: list[str]
    """Hashes of the shared bundle and of the tenant's, if it has one."""
    default: Effect
    rules: list[RuleInForce]
    problems: dict[str, str]
    """Errors in files that are therefore not in force, by `shared` or `tenant`; `tenants` if their directory is
    unreadable.
    """


@router.get("/v1/policy")
def read_policy(caller: Caller, services: ServicesDep) -> PolicyInForce:
    """Return the policy in force for the caller's tenant, and the errors in files that are not."""
    bundle = services.bundles.of(caller.tenant_id)
    found = services.bundles.problems()
    problems = {**{name: found.get(name) for name in ("shared", "tenants")}, "tenant": found.get(caller.tenant_id)}
    return PolicyInForce(
        name=bundle.name,
        hash=bundle.hash,
        layers=list(bundle.layers),
        default=bundle.default or Effect.DENY,
        rules=[
            RuleInForce(
                id=rule.id,
                effect=rule.effect,
                reason=rule.rule.reason,
                owner=rule.rule.owner,
                expires=rule.rule.expires.isoformat() if rule.rule.expires else None,
                file=rule.file,
                line=rule.line,
            )
            for rule in bundle.rules
        ],
        problems={name: str(problem) for name, problem in problems.items() if problem is not None},
    )


@router.post("/v1/policy/decide")
def decide_call(trial: PolicyQuery, caller: Caller, services: ServicesDep) -> Decision:
    """Evaluate policy for a call of the caller's tenant. Records and runs nothing."""
    return _evaluate(trial, caller.tenant_id, services, every=False)


@router.post("/v1/policy/explain")
def explain_call(trial: PolicyQuery, caller: Caller, services: ServicesDep) -> Decision:
    """Like `decide`, with each rule's part in the decision."""
    return _evaluate(trial, caller.tenant_id, services, every=True)


def _evaluate(trial: PolicyQuery, tenant: TenantId, services: ServicesDep, *, every: bool) -> Decision:
    # Always the caller's own tenant, not the query's: other tenants' rules are confidential.
    session = trial.session.model_copy(update={"tenant": tenant})
    tools = {tool.name: tool for tool in services.registry.of(tenant).tools()}
    bundle = services.bundles.of(tenant, session.policy_hash)
    return evaluate(trial.model_copy(update={"session": session}), tools, bundle, every=every)
