"""Effective limits of one run: profile, obligations, redactions, secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from codesdk.domain.decisions import Obligations, Redaction, combine_obligations
from codesdk.domain.model import FrozenModel
from codesdk.domain.redaction import Redactor
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.egress.rules import EgressRules
from codesdk.sandbox.profiles.profile import Profile

SecretProblem = Callable[[str, str], str]
"""(tenant's id, secret's name): what is wrong with it, for the agent's user; empty if it can be used."""


class EffectiveLimits(FrozenModel):
    """What applies to one run: the tightest of the session's profile, the manifest and policy."""

    obligations: Obligations
    profile: Profile

    @classmethod
    def of(cls, profile: dict[str, Any], tool: Tool, obligations: Obligations) -> EffectiveLimits:
        """`profile`: the session's; `obligations`: what policy demands."""
        combined = combine_obligations((obligations, Obligations(sandbox=tool.sandbox)))
        return cls(obligations=combined, profile=Profile.model_validate(profile).tighten(combined))

    def with_redactions(self, redactions: tuple[Redaction, ...]) -> EffectiveLimits:
        """The same limits, and further redactions."""
        if not redactions:
            return self
        obligations = combine_obligations((self.obligations, Obligations(redactions=redactions)))
        return EffectiveLimits(obligations=obligations, profile=self.profile)

    @cached_property
    def redactor(self) -> Redactor | None:
        """Removes what policy redacts."""
        return Redactor(self.obligations.redactions) if self.obligations.redactions else None

    @property
    def withholds_output(self) -> bool:
        """Whether no output may leave before the end, when it has been cleaned."""
        return self.redactor is not None and self.redactor.withholds_output

    def clean(self, tool: Tool, result: ToolResult) -> ToolResult:
        """The result without what policy redacts.

        Raises:
            InvalidOutput: it doesn't match the tool's output schema.
        """
        if result.structured is not None and not result.is_error:
            tool.check_output(result.structured)
        return result if self.redactor is None else self.redactor.clean_result(result)


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
    text = f"{tool.name} was not run: it needs the secret `{name}`, and {why}. An operator can fix that."
    return ToolResult(text=text, is_error=True, code=code)
