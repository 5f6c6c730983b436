"""Conditions in CEL, for what the structural matchers cannot say: `when: 'args.amount > 100'`.

The language is type-checked when the bundle is loaded, has no loops of its own, and its evaluator counts iterations
(docs/adr/0010). What an expression may name is listed in `_variables`, each under its full dotted name, so that a
typing error (`principal.role`) is found at load and not at the first call.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cel_expr_python import cel

from codesdk.domain.subjects import Subject
from codesdk.policy.facts import CallFacts, ToolFacts
from codesdk.policy.faults import Unevaluable

MAX_CHARACTERS = 2000
"""Of one expression: enough for a page of conditions, too little to be a program."""


class ConditionInvalid(ValueError):
    """The expression cannot be used; says where in it."""


def check_condition(text: str) -> str:
    """The text itself, where it is a condition.

    Raises:
        ConditionInvalid: it does not parse, names something unknown, or does not give true or false.
    """
    _compile(text)
    return text


def constant_value(text: str) -> bool | None:
    """What a condition gives whatever the call is; None where that depends on the call."""
    value = _compile(text).eval(data={})
    return value.value() is True if value.type() == cel.Type.BOOL else None


class Condition:
    """One compiled expression."""

    def __init__(self, text: str) -> None:
        self._expression = _compile(text)

    def holds(self, call: CallFacts, tool: ToolFacts, subject: Subject) -> bool:
        """Whether it is true of a call.

        Raises:
            Unevaluable: a key is missing, a type does not fit, or it takes too many steps.
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
        except (RuntimeError, TypeError, ValueError, OverflowError) as error:  # the evaluator's own, and of conversion
            raise Unevaluable(f"`when` cannot be evaluated: {_first_line(error)}") from error
        # An error is a value too, and a true one in Python: the type decides.
        if value.type() != cel.Type.BOOL:
            raise Unevaluable(f"`when` cannot be evaluated: {_first_line(value.value())}")
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
        raise ConditionInvalid(f"this is no condition: {_first_line(error)}.") from error
    if expression.return_type() != cel.Type.BOOL:
        kind = expression.return_type().name().lower()
        raise ConditionInvalid(f"a condition gives true or false; this gives {kind}. Compare it with something.")
    return expression


def _first_line(error: object) -> str:
    line = str(error).partition("\n")[0].strip()
    for lead in ("INVALID_ARGUMENT: ", "ERROR: <input>:", "NOT_FOUND: ", "UNKNOWN: ", "INTERNAL: "):
        line = line.removeprefix(lead)
    return line.removesuffix(" (in container '')").rstrip(".")
