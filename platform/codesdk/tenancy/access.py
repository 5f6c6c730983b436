"""Authorisation: one table of permissions and one pure decision, used by HTTP, MCP and the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault, NotPermitted
from codesdk.tenancy.principal import Principal, Reach, Role


class Action(StrEnum):
    """Everything that a caller may be permitted to do."""

    TOOLS_READ = "tools.read"
    SESSIONS_OPEN = "sessions.open"
    SESSIONS_READ = "sessions.read"
    SESSIONS_CLOSE = "sessions.close"
    SANDBOXES_START_STOP = "sandboxes.turn"
    EVENTS_READ = "events.read"
    CALLS_MAKE = "calls.make"
    CALLS_READ = "calls.read"
    CALLS_CANCEL = "calls.cancel"
    APPROVALS_READ = "approvals.read"
    APPROVALS_DECIDE = "approvals.decide"
    GRANTS_READ = "grants.read"
    GRANTS_REVOKE = "grants.revoke"
    POLICY_READ = "policy.read"
    POLICY_DECIDE = "policy.decide"
    POLICY_EXPLAIN = "policy.explain"
    POLICY_DIFF = "policy.diff"
    POLICY_PROMOTE = "policy.promote"
    ARTIFACTS_WRITE = "artifacts.write"
    ARTIFACTS_READ = "artifacts.read"
    ARTIFACTS_DELETE = "artifacts.delete"
    TENANTS_READ = "tenants.read"
    TENANTS_MANAGE = "tenants.manage"
    PRINCIPALS_READ = "principals.read"
    PRINCIPALS_MANAGE = "principals.manage"
    KEYS_READ = "keys.read"
    KEYS_MANAGE = "keys.manage"
    WEBHOOKS_READ = "webhooks.read"
    WEBHOOKS_MANAGE = "webhooks.manage"
    QUOTAS_READ = "quotas.read"
    QUOTAS_SET = "quotas.set"
    AUDIT_READ = "audit.read"
    HOSTS_READ = "hosts.read"
    HOSTS_MANAGE = "hosts.manage"
    METRICS_READ = "metrics.read"


class Permission(NamedTuple):
    """Who may perform an action."""

    roles: frozenset[Role]
    """A caller needs one of them."""
    reach: Reach = Reach.TENANT
    """The minimum reach."""
    across_tenants: bool = False
    """Whether callers with the reach of the instance may do it in other tenants too. Administration only, never
    content.
    """
    by_token: bool = False
    """Whether it also takes a session token, and then acts on that session. All others take an API key only."""


_ALL = frozenset(Role)
_RUNS = frozenset({Role.DEVELOPER, Role.OPERATOR})
_WATCHES = frozenset({Role.DEVELOPER, Role.OPERATOR, Role.APPROVER, Role.AUDITOR})
_DECIDES = frozenset({Role.APPROVER, Role.OPERATOR})
_AUTHORS = frozenset({Role.POLICY_AUTHOR, Role.OPERATOR, Role.AUDITOR})
_OPERATES = frozenset({Role.OPERATOR})
_OVERSEES = frozenset({Role.OPERATOR, Role.AUDITOR})

PERMISSIONS: dict[Action, Permission] = {
    Action.TOOLS_READ: Permission(_ALL),
    Action.SESSIONS_OPEN: Permission(_RUNS),
    Action.SESSIONS_READ: Permission(_WATCHES),
    Action.SESSIONS_CLOSE: Permission(_RUNS),
    Action.SANDBOXES_START_STOP: Permission(_RUNS),  # stopping also ends the session's background processes
    Action.EVENTS_READ: Permission(_WATCHES),
    Action.CALLS_MAKE: Permission(_RUNS, by_token=True),
    Action.CALLS_READ: Permission(_WATCHES),
    Action.CALLS_CANCEL: Permission(_RUNS),
    Action.APPROVALS_READ: Permission(_WATCHES),
    Action.APPROVALS_DECIDE: Permission(_DECIDES),
    Action.GRANTS_READ: Permission(_WATCHES),
    Action.GRANTS_REVOKE: Permission(_DECIDES),
    Action.POLICY_READ: Permission(_AUTHORS),  # rules reveal what to try; those who run agents use POLICY_DECIDE
    Action.POLICY_DECIDE: Permission(_AUTHORS | _RUNS),
    Action.POLICY_EXPLAIN: Permission(_AUTHORS),
    Action.POLICY_DIFF: Permission(_AUTHORS),  # shows recorded calls: authors need to see what a rule would change
    Action.POLICY_PROMOTE: Permission(
        frozenset({Role.POLICY_AUTHOR, Role.OPERATOR})
    ),  # the shared layer also needs the reach of the instance
    Action.ARTIFACTS_WRITE: Permission(_RUNS),
    Action.ARTIFACTS_READ: Permission(_WATCHES),
    Action.ARTIFACTS_DELETE: Permission(_OPERATES),  # artifacts are part of the record: the log refers to them
    Action.TENANTS_READ: Permission(
        _ALL, across_tenants=True
    ),  # a tenant's name and state are visible to its principals
    Action.TENANTS_MANAGE: Permission(_OPERATES, reach=Reach.INSTANCE, across_tenants=True),
    Action.PRINCIPALS_READ: Permission(_OVERSEES, across_tenants=True),
    Action.PRINCIPALS_MANAGE: Permission(_OPERATES, across_tenants=True),
    Action.KEYS_READ: Permission(_OVERSEES, across_tenants=True),
    Action.KEYS_MANAGE: Permission(_OPERATES, across_tenants=True),
    Action.WEBHOOKS_READ: Permission(_OVERSEES),
    Action.WEBHOOKS_MANAGE: Permission(_OPERATES),  # webhooks send the tenant's content elsewhere, and answer approvals
    Action.QUOTAS_READ: Permission(_ALL, across_tenants=True),  # a caller whose request exceeds a quota may see it
    Action.QUOTAS_SET: Permission(
        _OPERATES, reach=Reach.INSTANCE, across_tenants=True
    ),  # a tenant can't lift its own limits
    Action.AUDIT_READ: Permission(_OVERSEES, across_tenants=True),
    Action.HOSTS_READ: Permission(_OVERSEES, reach=Reach.INSTANCE),  # hosts belong to no tenant
    Action.HOSTS_MANAGE: Permission(_OPERATES, reach=Reach.INSTANCE),
    Action.METRICS_READ: Permission(_OVERSEES, reach=Reach.INSTANCE),  # figures cover all tenants
}


class Target(FrozenModel):
    """The object of an action."""

    tenant_id: TenantId
    session_id: SessionId | None = None
    """The session that the object belongs to, if any."""
    reach: Reach = Reach.TENANT
    """`instance` for a principal with that reach, and its keys: a tenant's operator must not create a key of one."""


class AccessAllowed(FrozenModel):
    """The caller may do it."""


class RefusalReason(StrEnum):
    """Why access was refused."""

    ROLE = "role"
    """The caller may do this to no target, so the refusal reveals nothing about the target."""
    NOT_VISIBLE = "unseen"
    """The target doesn't exist for this caller."""
    REACH = "reach"
    """The target exists, but needs a higher reach."""


class AccessDenied(FrozenModel):
    """The caller may not do it."""

    why: RefusalReason
    reason: str


class Forbidden(NotPermitted):
    """The caller is authenticated but lacks permission."""

    code = "FORBIDDEN"


def decide_access(caller: Principal | Subject, action: Action, target: Target) -> AccessAllowed | AccessDenied:
    """Decide whether `caller` may perform `action` on `target`. Pure. A principal has an API key, a subject a token."""
    grant = PERMISSIONS[action]
    refused = _check_caller(caller, grant)
    if refused is not None:
        return refused
    far = _reach(caller) is Reach.INSTANCE
    if target.tenant_id != caller.tenant_id and not (far and grant.across_tenants):
        return AccessDenied(why=RefusalReason.NOT_VISIBLE, reason="It is another tenant's.")
    if isinstance(caller, Subject) and target.session_id != caller.session_id:
        return AccessDenied(why=RefusalReason.NOT_VISIBLE, reason="It is another session's.")
    if target.reach is Reach.INSTANCE and not far:
        return AccessDenied(why=RefusalReason.REACH, reason="This is for an operator of the whole installation.")
    return AccessAllowed()


def may_attempt(caller: Principal | Subject, action: Action) -> AccessAllowed | AccessDenied:
    """Decide whether `caller` may perform `action` on any target at all, before the target is looked up."""
    return _check_caller(caller, PERMISSIONS[action]) or AccessAllowed()


def require(decision: AccessAllowed | AccessDenied, unseen: Fault) -> None:
    """Return if access is allowed, else raise.

    Raises:
        Forbidden: with the reason.
        Fault: `unseen`, if the caller must not learn that the target exists.
    """
    match decision:
        case AccessDenied(why=RefusalReason.NOT_VISIBLE):
            raise unseen
        case AccessDenied():
            raise Forbidden(decision.reason, advice="Ask an operator.")
        case AccessAllowed():
            return


def _check_caller(caller: Principal | Subject, grant: Permission) -> AccessDenied | None:
    if isinstance(caller, Subject) and not grant.by_token:
        return AccessDenied(why=RefusalReason.ROLE, reason="This requires an API key.")
    if not grant.roles.intersection(caller.roles):
        needed = ", ".join(sorted(grant.roles))
        return AccessDenied(
            why=RefusalReason.ROLE, reason=f"None of your roles permits this; it needs one of: {needed}."
        )
    if grant.reach is Reach.INSTANCE and _reach(caller) is not Reach.INSTANCE:
        return AccessDenied(why=RefusalReason.ROLE, reason="This is for an operator of the whole installation.")
    return None


def _reach(caller: Principal | Subject) -> Reach:
    return caller.reach if isinstance(caller, Principal) else Reach.TENANT
