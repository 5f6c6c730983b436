"""Authorisation: one table of permissions and one pure decision, used by HTTP, MCP and the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.errors import ExitCode, Fault
from codesdk.tenancy.principal import Principal, Reach, Role


class Action(StrEnum):
    """Everything that somebody may want."""

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
    """Who may do one thing."""

    roles: frozenset[Role]
    """Any of them will do."""
    reach: Reach = Reach.TENANT
    """The least reach that it takes."""
    across_tenants: bool = False
    """Whether a caller with the reach of the instance may do it in other tenants too: administration, never content."""
    by_token: bool = False
    """Whether it takes a session's token, and is done in that session; all else takes an API key."""


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
    Action.SANDBOXES_START_STOP: Permission(
        _RUNS
    ),  # stops and starts: what runs in the background of the session ends with it
    Action.EVENTS_READ: Permission(_WATCHES),
    Action.CALLS_MAKE: Permission(_RUNS, by_token=True),
    Action.CALLS_READ: Permission(_WATCHES),
    Action.CALLS_CANCEL: Permission(_RUNS),
    Action.APPROVALS_READ: Permission(_WATCHES),
    Action.APPROVALS_DECIDE: Permission(_DECIDES),
    Action.GRANTS_READ: Permission(_WATCHES),
    Action.GRANTS_REVOKE: Permission(_DECIDES),
    Action.POLICY_READ: Permission(
        _AUTHORS
    ),  # the rules themselves say what to try; whoever runs agents asks case by case
    Action.POLICY_DECIDE: Permission(_AUTHORS | _RUNS),
    Action.POLICY_EXPLAIN: Permission(_AUTHORS),
    Action.POLICY_DIFF: Permission(_AUTHORS),  # shows recorded calls: an author has to see what a rule would change
    Action.POLICY_PROMOTE: Permission(
        frozenset({Role.POLICY_AUTHOR, Role.OPERATOR})
    ),  # the shared layer: reach of the instance
    Action.ARTIFACTS_WRITE: Permission(_RUNS),
    Action.ARTIFACTS_READ: Permission(_WATCHES),
    Action.ARTIFACTS_DELETE: Permission(_OPERATES),  # the log refers to them: a part of the record
    Action.TENANTS_READ: Permission(
        _ALL, across_tenants=True
    ),  # its own tenant's name and state are no secret to anybody in it
    Action.TENANTS_MANAGE: Permission(_OPERATES, reach=Reach.INSTANCE, across_tenants=True),
    Action.PRINCIPALS_READ: Permission(_OVERSEES, across_tenants=True),
    Action.PRINCIPALS_MANAGE: Permission(_OPERATES, across_tenants=True),
    Action.KEYS_READ: Permission(_OVERSEES, across_tenants=True),
    Action.KEYS_MANAGE: Permission(_OPERATES, across_tenants=True),
    Action.WEBHOOKS_READ: Permission(_OVERSEES),
    Action.WEBHOOKS_MANAGE: Permission(
        _OPERATES
    ),  # it sends the tenant's content elsewhere, and answers as an approver
    Action.QUOTAS_READ: Permission(_ALL, across_tenants=True),  # whoever is refused for a quota may see it
    Action.QUOTAS_SET: Permission(
        _OPERATES, reach=Reach.INSTANCE, across_tenants=True
    ),  # a tenant does not lift its own limits
    Action.AUDIT_READ: Permission(_OVERSEES, across_tenants=True),
    Action.HOSTS_READ: Permission(_OVERSEES, reach=Reach.INSTANCE),  # hosts are no tenant's
    Action.HOSTS_MANAGE: Permission(_OPERATES, reach=Reach.INSTANCE),
    Action.METRICS_READ: Permission(_OVERSEES, reach=Reach.INSTANCE),  # sums over all tenants
}


class Target(FrozenModel):
    """What something is to be done to."""

    tenant_id: TenantId
    session_id: SessionId | None = None
    """The session that it belongs to, where it belongs to one."""
    reach: Reach = Reach.TENANT
    """`instance`: a principal of that reach, or a key of one; else a tenant's operator could make itself its key."""


class Allowed(FrozenModel):
    """Go on."""


class RefusalReason(StrEnum):
    """What a refusal is about."""

    ROLE = "role"
    """The caller could not do it to anything: says nothing about the target."""
    NOT_VISIBLE = "unseen"
    """For this caller the target does not exist."""
    REACH = "reach"
    """The target exists and is above the caller."""


class Refused(FrozenModel):
    """No."""

    why: RefusalReason
    reason: str


class Forbidden(Fault):
    """The caller is known, and may not do this."""

    code = "FORBIDDEN"
    status = 403
    exit_code = ExitCode.NO_PERMISSION


def decide_access(caller: Principal | Subject, action: Action, target: Target) -> Allowed | Refused:
    """Whether `caller` may do it. Pure; a principal came with an API key, a subject with a session's token."""
    grant = PERMISSIONS[action]
    refused = _check_caller(caller, grant)
    if refused is not None:
        return refused
    far = _reach(caller) is Reach.INSTANCE
    if target.tenant_id != caller.tenant_id and not (far and grant.across_tenants):
        return Refused(why=RefusalReason.NOT_VISIBLE, reason="It is another tenant's.")
    if isinstance(caller, Subject) and target.session_id != caller.session_id:
        return Refused(why=RefusalReason.NOT_VISIBLE, reason="It is another session's.")
    if target.reach is Reach.INSTANCE and not far:
        return Refused(why=RefusalReason.REACH, reason="This is for an operator of the whole installation.")
    return Allowed()


def may_attempt(caller: Principal | Subject, action: Action) -> Allowed | Refused:
    """Whether there is anything that `caller` may do it to: what is known before a target is looked for."""
    return _check_caller(caller, PERMISSIONS[action]) or Allowed()


def require(decision: Allowed | Refused, unseen: Fault) -> None:
    """Go on only where it is allowed.

    Raises:
        Forbidden: with the reason.
        Fault: `unseen`, where the caller must not learn that the target exists.
    """
    match decision:
        case Refused(why=RefusalReason.NOT_VISIBLE):
            raise unseen
        case Refused():
            raise Forbidden(decision.reason, advice="Ask an operator.")
        case Allowed():
            return


def _check_caller(caller: Principal | Subject, grant: Permission) -> Refused | None:
    if isinstance(caller, Subject) is not grant.by_token:
        wanted = "a session's token" if grant.by_token else "an API key"
        return Refused(why=RefusalReason.ROLE, reason=f"This takes {wanted}.")
    if not grant.roles.intersection(caller.roles):
        needed = ", ".join(sorted(grant.roles))
        return Refused(why=RefusalReason.ROLE, reason=f"None of your roles may do this; it needs one of: {needed}.")
    if grant.reach is Reach.INSTANCE and _reach(caller) is not Reach.INSTANCE:
        return Refused(why=RefusalReason.ROLE, reason="This is for an operator of the whole installation.")
    return None


def _reach(caller: Principal | Subject) -> Reach:
    return caller.reach if isinstance(caller, Principal) else Reach.TENANT
