"""Policy over HTTP: the active rules, and dry evaluation."""

from __future__ import annotations

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.policy.evaluation.query import PolicyQuery, evaluate

router = guarded_router()


class RuleInForce(FrozenModel):
    """One rule of the caller's bundle."""

    id: str
    effect: Effect
    reason: str
    owner: str
    expires: str | None
    file: str
    line: int


class PolicyInForce(FrozenModel):
    """The bundle that decides for the caller's tenant."""

    name: str
    hash: str
    layers: list[str]
    """Hashes of the shared bundle and the tenant's own, where it has one."""
    default: Effect
    rules: list[RuleInForce]
    problems: dict[str, str]
    """What is wrong with files that are therefore not in force: of the `shared` bundle, of the `tenant`'s; `tenants`, where
    the directory of all of them cannot be read."""


@router.get("/v1/policy")
def read_policy(caller: Caller, services: ServicesDep) -> PolicyInForce:
    """What is in force for the caller's tenant, and what is not for being wrong."""
    bundle = services.bundles.of(caller.tenant_id)
    problems = services.bundles.problems()
    told = {**{name: problems.get(name) for name in ("shared", "tenants")}, "tenant": problems.get(caller.tenant_id)}
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
        problems={name: str(problem) for name, problem in told.items() if problem is not None},
    )


@router.post("/v1/policy/decide")
def decide_call(trial: PolicyQuery, caller: Caller, services: ServicesDep) -> Decision:
    """What policy would say of a call of the caller's tenant. Nothing is recorded and nothing runs."""
    return _judged(trial, caller.tenant_id, services, every=False)


@router.post("/v1/policy/explain")
def explain_call(trial: PolicyQuery, caller: Caller, services: ServicesDep) -> Decision:
    """The same, with every rule's part in it."""
    return _judged(trial, caller.tenant_id, services, every=True)


def _judged(trial: PolicyQuery, tenant: TenantId, services: ServicesDep, *, every: bool) -> Decision:
    # Whatever the question says, it is about the caller's own tenant: another's rules are not to be found out.
    session = trial.session.model_copy(update={"tenant": tenant})
    tools = {tool.name: tool for tool in services.registry.of(tenant).tools()}
    bundle = services.bundles.of(tenant, session.policy_hash)
    return evaluate(trial.model_copy(update={"session": session}), tools, bundle, every=every)
