"""Conditions in CEL, for what the other matchers can't express: `when: 'args.amount > 100'`.

CEL is type-checked when the bundle is loaded, has no unbounded loops, and its evaluator counts iterations
(docs/adr/0010). `_variables` lists what an expression can use, each under its full dotted name, so that a typo
(`principal.role`) fails at load and not at the first call.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from cel_expr_python import cel

from codesdk.domain.subjects import Subject
from codesdk.policy.facts import CallFacts, ToolFacts
from codesdk.policy.faults import Unevaluable

MAX_CHARACTERS = 2000
"""Length of one expression. Enough for a page of conditions, too short for a program."""


_POSITION = re.compile(r"(\d+):(\d+): (.*)")
_UNKNOWN_NAME = re.compile(r"undeclared reference to '([^']*)'")


class ConditionInvalid(ValueError):
    """An expression can't be used. The message has the position."""


def check_condition(text: str) -> str:
    """Return the text unchanged if it is a valid condition.

    Raises:
        ConditionInvalid: it does not parse, uses an unknown name, or is not boolean.
    """
    _compile(text)
    return text


def constant_value(text: str) -> bool | None:
    """Return the value of a condition that is the same for all calls; None if it depends on the call."""
    value = _compile(text).eval(data={})
    return value.value() is True if value.type() == cel.Type.BOOL else None


class Condition:
    """A compiled condition."""

    def __init__(self, text: str) -> None:
        self._expression = _compile(text)

    def holds(self, call: CallFacts, tool: ToolFacts, subject: Subject) -> bool:
        """Evaluate the condition for a call.

        Raises:
            Unevaluable: a key is missing, a type is wrong, or evaluation takes too many steps.
        """
        facts = {
            "args": dict(call.input),
            "tool.name": tool.name,
            "tool.classification": tool.classification.value,
            "principal.id": subject.principal_id,
            "principal.roles": list(subject.roles),
            "session.id": subject.session_id,
            "session.tenant": subject.tenant_id,
            "session.mode": subject.permission_mode.value,
            "session.runtime": subject.runtime,
            "session.labels": subject.labels,
        }
        try:
            value = self._expression.eval(data=facts)
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # evaluation and type conversion
            raise Unevaluable(f"`when` cannot be evaluated: {_explain(error)}") from error
        # An error is returned as a value that is truthy in Python, so check the type.
        if value.type() != cel.Type.BOOL:
            raise Unevaluable(f"`when` cannot be evaluated: {_explain(value.value())}")
        return value.value() is True


@cache
def _environment() -> cel.Env:
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    return cel.NewEnv(
        variables={
            "args": cel.Type.Map(text, cel.Type.DYN),
            "tool.name": text,
            "tool.classification": text,
            "principal.id": text,
            "principal.roles": texts,
            "session.id": text,
            "session.tenant": text,
            "session.mode": text,
            "session.runtime": text,
            "session.labels": cel.Type.Map(text, text),
        }
    )


def _compile(text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise ConditionInvalid(f"an expression has at most {MAX_CHARACTERS} characters; this one has {len(text)}.")
    try:
        expression = _environment().compile(text)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConditionInvalid(f"this is not a valid condition: {_explain(error)}.") from error
    if expression.return_type() != cel.Type.BOOL:
        kind = expression.return_type().name().lower()
        raise ConditionInvalid(f"a condition gives true or false; this gives {kind}. Compare it with something.")
    return expression


def _explain(error: object) -> str:
    """Say what is wrong with an expression, and where in it."""
    line = str(error).partition("\n")[0].strip()
    for lead in ("INVALID_ARGUMENT: ", "ERROR: <input>:", "NOT_FOUND: ", "UNKNOWN: ", "INTERNAL: "):
        line = line.removeprefix(lead)
    line = line.removesuffix(" (in container '')").rstrip(".")
    found = _POSITION.fullmatch(line)
    if found is None:
        return line
    row, column, problem = found.groups()
    if "'<EOF>'" in problem:
        return "it ends too early"
    if unknown := _UNKNOWN_NAME.fullmatch(problem):
        known = "`args`, `tool`, `principal` and `session`"
        problem = f"there is no name or function `{unknown[1]}`; the names are {known}"
    else:
        problem = problem.removeprefix("Syntax error: ").partition(" expecting ")[0]
    return f"{problem} (line {row}, character {column} of it)"
