"""What an approver is shown of a call: pure, from what would run and why it is asked."""

from __future__ import annotations

from typing import Any

from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Classification, Decision
from codesdk.policy.shell.commands import ShellViews
from codesdk.registry import Tool
from codesdk.toolcalls.approval.call_commands import command_words, shell_views, shown_cause, shown_effects
from codesdk.toolcalls.records.call_record import SessionFacts

_RISKS = {
    Classification.WRITE: "It writes.",
    Classification.NETWORK: "It reaches the network.",
    Classification.DANGEROUS: "It may do anything that its sandbox lets it.",
}


def approval_summary(call: ToolCall, tool: Tool, decision: Decision, facts: SessionFacts) -> dict[str, Any]:
    """JSON values; `commands` has every command anywhere in a shell line, wrappers and what they wrap.

    `runs`: the command line of a registered tool. `cause` and `effects`: see `call_commands`.
    """
    views = shell_views(tool, call.input)
    argv = tool.argv(call.input)
    cause = shown_cause(decision.cause, call.input)
    return {
        "tool": call.name,
        "title": tool.title,
        "input": call.input,
        "classification": tool.classification.value,
        "risk": _risk(tool, views),
        "effects": shown_effects(tool, call.input, views),
        "rules": list(decision.rules),
        "reason": decision.reason,
        "obligations": decision.obligations.model_dump(mode="json", exclude_defaults=True),
        "profile": facts.profile.get("name"),
        "image": facts.image,
        "behaviour": tool.behaviour_hash,
        "session": facts.subject.session_id,
        "principal": facts.subject.principal_id,
        "mode": facts.subject.permission_mode.value,
        **({"cause": cause} if cause else {}),
        **({"runs": list(argv)} if argv else {}),
        **({"commands": [command_words(command) for command in views.seen]} if views else {}),
    }


def _risk(tool: Tool, views: ShellViews | None) -> list[str]:
    risk = _RISKS.get(tool.classification)
    opaque = f"Not all that it runs can be read from it: {views.opaque}." if views and views.opaque else None
    return [line for line in (risk, opaque) if line]
