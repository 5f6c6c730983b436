"""What an approver is shown of a call: pure, from what would run and why it is asked."""

from __future__ import annotations

from typing import Any

from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Classification, Decision
from codesdk.policy.shell.command_analysis import analyze_argv, analyze_line
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.registry import Tool
from codesdk.toolcalls.records.call_record import SessionFacts

_RISKS = {
    Classification.WRITE: "It writes.",
    Classification.NETWORK: "It reaches the network.",
    Classification.DANGEROUS: "It may do anything that its sandbox lets it.",
}


def approval_summary(call: ToolCall, tool: Tool, decision: Decision, facts: SessionFacts) -> dict[str, Any]:
    """JSON values; `commands` has every command anywhere in a shell line, wrappers and what they wrap."""
    views = _shell_views(call)
    found = {
        "tool": call.name,
        "title": tool.title,
        "input": call.input,
        "classification": tool.classification.value,
        "risk": _risk(tool, views),
        "rules": list(decision.rules),
        "reason": decision.reason,
        "obligations": decision.obligations.model_dump(mode="json", exclude_defaults=True),
        "profile": facts.profile.get("name"),
        "image": facts.image,
        "behaviour": tool.behaviour_hash,
        "session": facts.subject.session_id,
        "principal": facts.subject.principal_id,
        "mode": facts.subject.permission_mode.value,
    }
    return {**found, "commands": [_command_words(command) for command in views.seen]} if views else found


def _risk(tool: Tool, views: ShellViews | None) -> list[str]:
    risk = _RISKS.get(tool.classification)
    opaque = f"Not all that it runs can be read from it: {views.opaque}." if views and views.opaque else None
    return [line for line in (risk, opaque) if line]


def _shell_views(call: ToolCall) -> ShellViews | None:
    line, argv, stdin = call.input.get("command"), call.input.get("argv"), call.input.get("stdin")
    script = stdin if isinstance(stdin, str) else None
    if isinstance(line, str) and argv is None:
        return analyze_line(line, script)
    if line is None and isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv):
        return analyze_argv(argv, script)
    return None


def _command_words(command: SimpleCommand) -> list[str]:
    return [*(f"{name}={value.text}" for name, value in command.assignments), *(word.text for word in command.words)]
