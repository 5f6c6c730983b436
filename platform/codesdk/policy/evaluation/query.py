"""Hypothetical calls, for tests, `explain`, `decide` and comparisons of bundles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from codesdk.documents import nearest
from codesdk.domain.canonical import bytes_hash
from codesdk.domain.decisions import Decision, Effect, PermissionMode
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation.decision import decide, explain
from codesdk.policy.facts import Call, ToolFacts


class QueryPrincipal(FrozenModel):
    """The principal of a query."""

    id: str = "prn_someone"
    roles: tuple[str, ...] = ()


class QuerySession(FrozenModel):
    """The session of a query."""

    id: str = "ses_trial"
    tenant: str = "ten_trial"
    runtime: str = "mcp-client"
    labels: dict[str, str] = {}
    policy_hash: str | None = None
    """Hash of the session's own rules."""


def _with_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


class PolicyQuery(FrozenModel):
    """A hypothetical call. As JSON: `{"tool": "workspace.exec", "input": {"command": "git status"}}`."""

    tool: str = Field(min_length=1, max_length=256)
    input: dict[str, Any] = {}
    principal: Annotated[QueryPrincipal, BeforeValidator(_with_id, json_schema_input_type=str | QueryPrincipal)] = (
        QueryPrincipal()
    )
    mode: PermissionMode = PermissionMode.AUTO
    session: Annotated[QuerySession, BeforeValidator(_with_id, json_schema_input_type=str | QuerySession)] = (
        QuerySession()
    )

    def subject(self) -> Subject:
        """The subject of the query."""
        return Subject(
            tenant_id=TenantId(self.session.tenant),
            principal_id=PrincipalId(self.principal.id),
            session_id=SessionId(self.session.id),
            permission_mode=self.mode,
            runtime=self.session.runtime,
            roles=self.principal.roles,
            labels=self.session.labels,
            policy_hash=self.session.policy_hash,
        )


def evaluate(trial: PolicyQuery, tools: Mapping[str, ToolFacts], bundle: Bundle, *, every: bool = False) -> Decision:
    """The verdict; with `every` rule in the trace. A tool that does not exist is denied, with the nearest name."""
    tool = tools.get(trial.tool)
    if tool is None:
        near = nearest(trial.tool, tools)
        hint = f" Did you mean `{near}`?" if near else ""
        reason = f"There is no tool `{trial.tool}`.{hint}"
        return Decision(effect=Effect.DENY, rules=(), reason=reason, bundle_hash=bundle.hash or bytes_hash(b""))
    ask = explain if every else decide
    return ask(Call(name=tool.name, input=trial.input), tool, trial.subject(), bundle)
