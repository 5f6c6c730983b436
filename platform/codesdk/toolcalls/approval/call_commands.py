"""The commands that a call runs, and what they can do: for the people who approve it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from codesdk.domain.decisions import Classification, CommandCause
from codesdk.policy.shell.command_analysis import analyze_argv, analyze_line
from codesdk.policy.shell.command_effects import PHRASES, CommandEffect, all_effects
from codesdk.policy.shell.command_layout import LineLayout
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.registry import Builtin, SourceCall, Tool

_OF_BUILTINS = {
    "workspace.write": CommandEffect.WRITES,
    "workspace.edit": CommandEffect.WRITES,
    "workspace.move": CommandEffect.OVERWRITES,
    "workspace.delete": CommandEffect.DELETES,
    "patch.apply": CommandEffect.WRITES,
    "process.signal": CommandEffect.PROCESSES,
    "http.fetch": CommandEffect.NETWORK,
}


def shell_views(tool: Tool, given: Mapping[str, Any]) -> ShellViews | None:
    """The commands of a call: of its line, of its words, or of the registered tool's command line. None if it has none."""
    line, argv, stdin = given.get("command"), given.get("argv"), given.get("stdin")
    script = stdin if isinstance(stdin, str) else None
    if words := tool.argv(given):
        return analyze_argv(words)
    if isinstance(line, str) and argv is None:
        return analyze_line(line, script)
    if line is None and isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv):
        return analyze_argv(argv, script)
    return None


def command_words(command: SimpleCommand) -> list[str]:
    """The words of a command, with the variables that are set in front of it."""
    return [*(f"{name}={value.text}" for name, value in command.assignments), *(word.text for word in command.words)]


def shown_effects(tool: Tool, given: Mapping[str, Any], views: ShellViews | None) -> list[dict[str, Any]]:
    """What a call can do, as JSON values: `text` in words, `effects` by name, `command` that does it (if it has any)."""
    if views is None:
        effect = _of_tool(tool)
        return [{"text": PHRASES[effect], "effects": [effect.value]}]
    found = [
        {
            "text": one.phrase,
            "effects": sorted(effect.value for effect in one.effects),
            "command": [word.text + "…" * word.dynamic for word in one.command.words],
        }
        for one in all_effects(views.seen)
    ]
    line = given.get("command")
    return [*found, *(_of_redirections(line) if isinstance(line, str) and not tool.argv(given) else ())]


def shown_cause(cause: CommandCause | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The command that made policy ask, as JSON values: `command`, indexes of its decisive `words`, and their `spans`.

    `spans`: where these words are in `input.command`, as pairs of character offsets; empty if they aren't written there.
    """
    if cause is None:
        return None
    line = given.get("command")
    spans = LineLayout(line).find(cause.command, cause.words) if isinstance(line, str) else ()
    return {"command": list(cause.command), "words": list(cause.words), "spans": [list(span) for span in spans]}


def _of_tool(tool: Tool) -> CommandEffect:
    if isinstance(tool.runs, SourceCall):
        return CommandEffect.UNKNOWN
    if tool.classification is Classification.READ_ONLY:
        return CommandEffect.READS
    return (
        _OF_BUILTINS.get(tool.runs.builtin, CommandEffect.UNKNOWN)
        if isinstance(tool.runs, Builtin)
        else CommandEffect.UNKNOWN
    )


def _of_redirections(line: str) -> Iterator[dict[str, Any]]:
    told = dict.fromkeys((one.appends, one.target) for one in LineLayout(line).redirections)
    for appends, target in told:
        effect = CommandEffect.WRITES if appends else CommandEffect.OVERWRITES
        yield {"text": PHRASES[effect], "effects": [effect.value], "command": [">>" if appends else ">", target]}
