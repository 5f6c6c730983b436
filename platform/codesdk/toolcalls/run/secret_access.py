"""Which secrets a call's execs may have added at the egress proxy. Pure; no value of a secret comes through here."""

from __future__ import annotations

from collections.abc import Callable, Collection

from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.egress.rules import EgressRules

SecretProblem = Callable[[str, str], str]
"""(tenant's id, secret's name): what is wrong with it, for the agent's user; empty where it can be used."""


def no_secrets(_tenant: str, _name: str) -> str:
    """A worker without a secret store."""
    return "This worker has no secrets."


def with_granted_secrets(rules: EgressRules, tool: Tool, claimed: Collection[str]) -> EgressRules:
    """The rules without the secrets that only other tools have. `claimed`: names that any tool's manifest asks for.

    A secret that a manifest names goes to that tool's execs and no others; one that none names, to whatever runs.
    """
    withheld = frozenset(claimed) - frozenset(tool.secrets)
    if not withheld:
        return rules
    kept = (
        rule.model_copy(update={"inject": tuple(item for item in rule.inject if item.secret not in withheld)})
        for rule in rules.rules
    )
    return rules.model_copy(update={"rules": tuple(kept)})


def missing_secret(rules: EgressRules, tool: Tool, tenant: str, problem_of: SecretProblem) -> ToolResult | None:
    """Why the tool cannot have a secret that it needs, before anything runs; None where it has all."""
    sent = {item.secret for rule in rules.rules for item in rule.inject}
    for name in tool.secrets:
        if name not in sent:
            why = "this session's profile adds it to no host (`inject` in an egress rule)"
            return _refused(tool, name, "SECRET_NOT_GRANTED", why)
        if problem := problem_of(tenant, name):
            return _refused(tool, name, "SECRET_MISSING", problem)
    return None


def _refused(tool: Tool, name: str, code: str, why: str) -> ToolResult:
    text = f"{tool.name} was not run: it needs the secret `{name}`, and {why}. An operator can mend that."
    return ToolResult(text=text, is_error=True, code=code)
