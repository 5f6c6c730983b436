"""A rule from one call: as narrow as the call's kind, and with its own test."""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Mapping
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Effect
from codesdk.errors import ExitCode, Fault
from codesdk.policy.evaluation.query import PolicyQuery
from codesdk.policy.facts import Call, ToolFacts
from codesdk.policy.faults import Unevaluable
from codesdk.policy.matching.compiled_rules import MatchOutcome, PolicyInput, compile_rule
from codesdk.policy.schema.host_patterns import host_of
from codesdk.policy.schema.models import Rule, looks_like_pattern

_PATHS = frozenset({"path", "from", "to", "directory", "cwd"})
_URLS = frozenset({"url", "host"})
_CONTENT = frozenset({"content", "patch", "stdin", "text", "old_text", "new_text"})
"""Arguments that are what is written, not where: the kind of the call does not depend on them."""


class NoSafeRule(Fault):
    """No rule can allow this call without allowing what nobody has seen."""

    code = "NO_SAFE_RULE"
    status = 422
    exit_code = ExitCode.FAILED


def suggest_rule(trial: PolicyQuery, tool: ToolFacts) -> dict[str, Any]:
    """The rule as plain data, ready to be written; it matches the call.

    Raises:
        NoSafeRule: the call cannot be read with certainty, so it stays with people.
    """
    question = PolicyInput(Call(name=tool.name, input=trial.input), tool, trial.subject())
    written: dict[str, Any] = {
        "id": f"allow-{tool.name.replace('.', '-')}-{content_hash(trial.input)[-8:]}",
        "effect": Effect.ALLOW.value,
        "tool": tool.name,
        "reason": "Suggested from a recorded call; explain here why it is allowed.",
    }
    if question.shell is None:
        tests = {f"/{_escaped(name)}": _argument_test(name, value) for name, value in trial.input.items()}
        tests = {pointer: test for pointer, test in tests.items() if test is not None}
        written |= {"args": tests} if tests else {}
        example: Any = {"tool": tool.name, "input": _without_content(trial.input)}
        written["examples"] = {"match": [example]}
    else:
        written |= _command(question, trial)
    rule = compile_rule(Rule.model_validate(written), "", 0)
    if rule.match(question).verdict is not MatchOutcome.YES:
        why = rule.match(question).why or "it depends on more than its words"
        raise NoSafeRule(f"No rule is suggested: {why}.", advice="Leave calls like this one to approvers.")
    return written


def suggest_case(trial: PolicyQuery, rule: Mapping[str, Any]) -> dict[str, Any]:
    """The test that goes with the rule, in the mode `auto`: in `ask` no rule allows, and in `yolo` nothing is shown."""
    command = trial.input.get("command")
    shown = {"command": command} if isinstance(command, str) and len(trial.input) == 1 else {"input": trial.input}
    case = {"name": f"{rule['id']} allows the call that it was made from", "tool": trial.tool, **shown}
    return {**case, "expect": Effect.ALLOW.value, "by": rule["id"]}


def _command(question: PolicyInput, trial: PolicyQuery) -> dict[str, Any]:
    shell = question.shell
    if shell is None or shell.allow_view is None:
        why = shell.refusal if shell else "it has no command"
        raise NoSafeRule(f"No rule is suggested: {why}.", advice="Leave commands like this one to approvers.")
    patterns: list[list[Any]] = []
    for command in shell.allow_view:
        if any(word.glob for word in command.words):
            raise NoSafeRule(
                "No rule is suggested: which files a pattern in it stands for is only known when it runs.",
                advice="Leave commands like this one to approvers.",
            )
        tokens = [_token(word.text) for word in command.words]
        if tokens not in patterns:
            patterns.append(tokens)
    line = trial.input.get("command")
    wider = [f"{line}; another-command", f"{line} --another-option"] if isinstance(line, str) else []
    examples = {"match": [line], "no_match": wider} if wider else {}
    return {"command": {"any_of": patterns}, "examples": examples}


def _token(word: str) -> Any:
    """The token of a command pattern that matches exactly this word."""
    return {"glob": glob.escape(word)} if looks_like_pattern(word) else word


def _argument_test(name: str, value: Any) -> dict[str, Any] | None:
    """What of one argument makes the kind of the call; None where it does not count."""
    if name in _CONTENT or isinstance(value, dict | list):
        return None
    if name in _PATHS and isinstance(value, str):
        path = posixpath.normpath(value)
        return {"eq": value} if path.startswith(("..", "/")) else {"beneath": posixpath.dirname(path) or path}
    if name in _URLS and isinstance(value, str):
        try:
            return {"host": host_of(value)}
        except Unevaluable as error:
            message = f"No rule is suggested: its `{name}` {error}."
            raise NoSafeRule(message, advice="Leave calls like this one to approvers.") from error
    return {"eq": value}


def _without_content(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "…" if name in _CONTENT else value for name, value in given.items()}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
