"""Conditions in CEL, for what the other matchers can't express: `when: 'args.amount > 100'`.

CEL is type-checked when the bundle is loaded, has no unbounded loops, and its evaluator counts iterations
(docs/adr/0010). `_variables` lists what an expression can use, each under its full dotted name, so that a typo
(`principal.role`) fails at load and not at the first call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from cel_expr_python import cel

from codesdk.domain.subjects import Subject
from codesdk.policy.facts import CallFacts, ToolFacts
from codesdk.policy.faults import Unevaluable
from codesdk.policy.schema import regular_expressions

MAX_CHARACTERS = 2000
"""Length of one expression. Enough for a page of conditions, too short for a program."""


TEXT, NUMBER, BOOLEAN = "string", "number", "boolean"
"""JSON types."""
_TYPES = {TEXT: cel.Type.STRING, NUMBER: cel.Type.DOUBLE, BOOLEAN: cel.Type.BOOL}
_NUMERIC = frozenset({"double", "int", "uint", "list", "map"})
"""Types that the check confuses: it takes each number for a double, and a whole one may be an int."""
_ARGUMENT = re.compile(
    r"""(?<![\w.])args((?:\s*\.\s*[A-Za-z_]\w*(?!\w*\s*\()|\s*\[\s*(?:"[^"\\]*"|'[^'\\]*')\s*\])+)"""
)
_STEP = re.compile(r"""\.\s*(\w+)|\[\s*["']([^"']*)["']""")
_PRESENCE = re.compile(r"\bhas\s*\([^()]*\)")
_OWN_ARGS = re.compile(r"\(\s*args\s*,")
"""A macro that gives the name `args` to something else."""
_INDEX = re.compile(r"""(?<![\w.])args\s*\[\s*["']([A-Za-z_]\w*)["']\s*\]""")
_OVERLOAD = re.compile(r"found no matching overload for '.*' applied to '\((.*)\)'")
_POSITION = re.compile(r"(\d+):(\d+): (.*)")
_UNKNOWN_NAME = re.compile(r"undeclared reference to '([^']*)'")


class ConditionInvalid(ValueError):
    """An expression can't be used. The message has the position."""


def check_condition(text: str) -> str:
    """Return the text unchanged if it is a valid condition.

    Raises:
        ConditionInvalid: it does not parse, uses an unknown name, is not boolean, or has an unusable regular expression.
    """
    _compile(text)
    for written in regular_expressions.pattern_expressions(text):
        _check_pattern(written)
    return text


def argument_paths(text: str) -> list[tuple[str, ...]]:
    """Return the arguments that a condition reads, each as the names that lead to it; empty if that isn't certain."""
    masked = regular_expressions.mask_literals(text)
    if _OWN_ARGS.search(masked):
        return []
    found = [match for match in _ARGUMENT.finditer(text) if masked[match.start()] != " "]
    return [tuple(one or other for one, other in _STEP.findall(match[1])) for match in found]


def type_problems(text: str, kinds: Mapping[str, str]) -> list[str]:
    """Return what is wrong with a condition's use of arguments whose JSON types are known, with the positions.

    `kinds`: type by name of the argument. Numbers are only compared with what is no number: whether one is whole is not known.
    """
    masked = regular_expressions.mask_literals(text)
    if _OWN_ARGS.search(masked):
        return []
    for found in _PRESENCE.finditer(masked):  # the check would take it for the value itself
        text = text[: found.start()] + "true".ljust(len(found[0])) + text[found.end() :]
    for found in _INDEX.finditer(text):  # the check knows the types of `args.name` only
        if masked[found.start()] != " ":
            text = text[: found.start()] + f"args.{found[1]}".ljust(len(found[0])) + text[found.end() :]
    try:
        _typed_environment(tuple(sorted(kinds.items()))).compile(regular_expressions.use_bounded_matches(text))
    except (RuntimeError, TypeError, ValueError) as error:
        return list(_mismatches(str(error)))
    return []


def _mismatches(message: str) -> Iterator[str]:
    for line in message.splitlines():
        found = _OVERLOAD.search(line)
        types = set(re.findall(r"\w+", found[1])) if found else set[str]()
        if found is not None and not types <= _NUMERIC and "null_type" not in types:
            yield _explain(line)


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
        regular_expressions.begin_evaluation()
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
    return cel.NewEnv(variables=_variables(), functions=[regular_expressions.declaration()])


@lru_cache(maxsize=256)
def _typed_environment(kinds: tuple[tuple[str, str], ...]) -> cel.Env:
    """Return an environment that also knows the types of some arguments, only to check expressions."""
    typed = {f"args.{name}": _TYPES[kind] for name, kind in kinds}
    return cel.NewEnv(variables={**_variables(), **typed}, functions=[regular_expressions.declaration()])


def _variables() -> dict[str, cel.Type]:
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    return {
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


def _compile(text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise ConditionInvalid(f"an expression has at most {MAX_CHARACTERS} characters; this one has {len(text)}.")
    try:
        expression = _environment().compile(regular_expressions.use_bounded_matches(text))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConditionInvalid(f"this is not a valid condition: {_explain(error)}.") from error
    if expression.return_type() != cel.Type.BOOL:
        kind = expression.return_type().name().lower()
        raise ConditionInvalid(f"a condition gives true or false; this gives {kind}. Compare it with something.")
    return expression


def _check_pattern(written: str) -> None:
    try:
        value = _environment().compile(written).eval(data={})
    except (RuntimeError, TypeError, ValueError):
        value = None
    if value is None or value.type() != cel.Type.STRING:
        raise ConditionInvalid(f"write the pattern of `matches` out as a text, in place of `{written}`.")
    try:
        regular_expressions.check_pattern(value.value())
    except ValueError as error:
        raise ConditionInvalid(f"{written} is not a usable regular expression (RE2): {error}.") from error


def _explain(error: object) -> str:
    """Say what is wrong with an expression, and where in it."""
    line = regular_expressions.restore_name(str(error).partition("\n")[0].strip())
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
