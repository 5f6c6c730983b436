"""The limits of one run: profile, obligations, redactions, secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from codesdk.domain.decisions import Obligations, Redaction, combine_obligations
from codesdk.domain.ids import ToolCallId
from codesdk.domain.redaction import Redactor
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Builtin, Tool
from codesdk.sandbox.egress.rules import EgressRules
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.tools.processes import call_id_of_process

_OUTPUT_POINTER = "/text"
"""Where process.read has the output."""
SecretProblem = Callable[[str, str], str]
"""(tenant's id, secret's name): what is wrong with it, for the agent's user; empty where it can be used."""


class EffectiveLimits(NamedTuple):
    """What holds for one run: the session's profile, the manifest and what policy demanded, the tightest of each."""

    obliged: Obligations
    profile: Profile
    redactor: Redactor | None

    @classmethod
    def of(cls, claimed: ClaimedCall, tool: Tool, *extra: Obligations) -> EffectiveLimits:
        """Of that call. `extra`: what holds of it besides."""
        obliged = combine_obligations((claimed.stored.obligations, Obligations(sandbox=tool.sandbox), *extra))
        profile = Profile.model_validate(claimed.stored.profile).tighten(obliged)
        return cls(obliged, profile, Redactor(obliged.redactions) if obliged.redactions else None)

    @property
    def withholds_output(self) -> bool:
        """Whether nothing goes out before the end, when it has been cleaned."""
        return self.redactor is not None and self.redactor.withholds_output

    def clean(self, tool: Tool, result: ToolResult) -> ToolResult:
        """The result as it may be told.

        Raises:
            InvalidOutput: it is not what the tool's schema says.
        """
        if result.structured is not None and not result.is_error:
            tool.check_output(result.structured)
        return result if self.redactor is None else self.redactor.clean_result(result)


def tool_changed_result(claimed: ClaimedCall, tool: Tool) -> ToolResult | None:
    """The refusal, where the tool is not the one that was decided about."""
    if claimed.behaviour_hash in (None, tool.behaviour_hash):
        return None
    text = f"{tool.name} was not run: its manifest has changed since this call was decided."
    return ToolResult(text=text, is_error=True, code="TOOL_CHANGED")


def inherited_redactions(tool: Tool, given: dict[str, Any], database: Database) -> Obligations:
    """The redactions that come with a process which this call reads; none for other calls."""
    if not isinstance(tool.runs, Builtin) or tool.runs.builtin != "process.read":
        return Obligations()
    with database.read() as connection:
        started = store.find(connection, ToolCallId(call_id_of_process(str(given["process"]))))
    if started is None:
        return Obligations()
    # A pointer means a place in the start's own result: what it hides may be anywhere in the output.
    return Obligations(
        redactions=tuple(
            item if item.pointer is None else Redaction(pointer=_OUTPUT_POINTER)
            for item in started.obligations.redactions
        )
    )


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
