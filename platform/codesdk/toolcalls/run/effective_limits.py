"""What one run is held to, whoever runs it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.domain.decisions import Obligations, combine_obligations
from codesdk.domain.redaction import Redactor
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.profiles.profile import Profile
from codesdk.toolcalls.records.call_record import ClaimedCall


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
