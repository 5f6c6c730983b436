"""Finds rules that can never match, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from codesdk.documents import nearest
from codesdk.domain.decisions import Effect
from codesdk.policy.faults import Unevaluable
from codesdk.policy.linting.containment import allowed_values, contains
from codesdk.policy.linting.tool_schemas import NUMBER, TEXT, ToolSchema, argument_names, json_type, types_at
from codesdk.policy.matching.argument_conditions import compile_test, normalized_folder, pointer_steps
from codesdk.policy.matching.call_paths import is_content
from codesdk.policy.matching.compiled_rules import CompiledMatcher, CompiledRule
from codesdk.policy.schema.conditions import constant_value
from codesdk.policy.schema.models import ArgumentTest, CommandMatcher, Rule


def unmatchable_reasons(rule: CompiledRule, tool_schemas: Mapping[str, ToolSchema], day: date | None) -> Iterator[str]:
    """Yield why the rule can't match on `day` or later, given these tools; nothing if it can."""
    written = rule.rule
    if day is not None and rule.expired(day):
        yield f"expired on {written.expires}; it has no effect any more."
    for why in _matcher_reasons(written):
        yield f"never matches: {why}."
    if written.unless is not None and _unless_always_holds(written):
        yield "never matches: its `unless` holds wherever it would."
    named = _named_tools(written, tool_schemas)
    if named is not None:
        yield from _tool_reasons(rule, named)


def _matcher_reasons(rule: Rule) -> Iterator[str]:
    """Yield contradictions in the rule that do not depend on tools."""
    for pointer, test in (rule.args or {}).items():
        why = _test_reason(test)
        if why:
            yield f"`{pointer}` {why}"
    if rule.command is not None:
        yield from _command_reasons(rule.command)
    if rule.when is not None and constant_value(rule.when) is False:
        yield "`when` is false of every call"


def _test_reason(test: ArgumentTest) -> str:
    """Return why no value can pass the test; empty if one can."""
    said = test.model_fields_set - {"exists"}
    numbers, texts = said & {"gt", "ge", "lt", "le"}, said & {"glob", "beneath", "host"}
    values = allowed_values(test)
    why = ""
    if test.exists is False:
        why = "must be missing, so its other tests have no effect" if said else ""
    elif values is not None:
        why = "" if any(_holds(test, value) for value in values) else "cannot meet all of its tests"
    elif test.beneath is not None and all(normalized_folder(root) is None for root in test.beneath):
        why = "must be beneath folders outside of the workspace"
    elif numbers and texts:
        why = "must be a number and a text"
    elif numbers and not _leaves_a_number(test):
        why = "has bounds that leave no number"
    return why


def _leaves_a_number(test: ArgumentTest) -> bool:
    low = max(bound for bound in (test.gt, test.ge, float("-inf")) if bound is not None)
    high = min(bound for bound in (test.lt, test.le, float("inf")) if bound is not None)
    return low < high or (low == high and low != test.gt and high != test.lt)


def _holds(test: ArgumentTest, value: object) -> bool:
    try:
        return compile_test(test)(value)
    except Unevaluable:
        return False


def _command_reasons(command: CommandMatcher) -> Iterator[str]:
    if command.any_flag and set(command.any_flag) <= set(command.forbid_flags):
        yield "the options that it wants are those that it forbids"
    words = [token for pattern in command.any_of for token in pattern if isinstance(token, str)]
    words += [word for pattern in command.any_of for token in pattern if isinstance(token, list) for word in token]
    for word in words:
        if " " in word:
            yield f"`{word}` is one word of a command there; write [{', '.join(word.split())}]"


def _unless_always_holds(rule: Rule) -> bool:
    if rule.unless is None or not contains(rule.unless, rule):
        return False
    # An ask or a deny also matches if its arguments can't be read, and then `unless` does not apply.
    return rule.effect is Effect.ALLOW or not CompiledMatcher(rule.unless).depends_on_input


def _named_tools(rule: Rule, tool_schemas: Mapping[str, ToolSchema]) -> list[ToolSchema] | None:
    """Return the tools that a rule names; None if it may match tools that are added later."""
    if not tool_schemas or (rule.tool is None and rule.server is None):
        return None
    named = CompiledMatcher(rule.model_copy(update={"classification": None, "server": None}))
    if not all(name in tool_schemas for name in rule.tool or () if not any(mark in name for mark in "*?[")):
        return None
    return [shape for shape in tool_schemas.values() if not named.fits_tool(shape.name, shape.classification)] or None


def _tool_reasons(rule: CompiledRule, named: list[ToolSchema]) -> Iterator[str]:
    written = rule.rule
    whys = {shape.name: rule.matcher.fits_tool(shape.name, shape.classification) for shape in named}
    fitting = [shape for shape in named if not whys[shape.name]]
    if not fitting:
        if any("server" in why for why in whys.values()):
            if written.tool is not None:  # otherwise the server is unknown, which is reported separately
                yield f"never matches: {_tool_list(named)} does not come from {', '.join(written.server or ())}."
            return
        told = ", ".join(f"`{shape.name}` is {shape.classification}" for shape in named[:3])
        yield f"never matches: {told}, and the rule is about {', '.join(written.classification or ())}."
        return
    schemas = [shape.input_schema for shape in fitting]
    if written.command is not None and not any(
        types_at(schema, (name,)) != frozenset() for schema in schemas for name in ("command", "argv")
    ):
        yield f"never matches: {_tools_have(fitting)} no command."
    if written.paths is not None and not any(_may_name_path(schema) for schema in schemas):
        yield f"never matches: {_tools_have(fitting)} no argument that may be a path."
    for pointer, test in (written.args or {}).items():
        yield from _argument_reasons(pointer, test, fitting, written.effect)


def _may_name_path(schema: Mapping[str, Any]) -> bool:
    """Return whether some argument of the tool counts as a path, or as a command."""
    if schema.get("additionalProperties") is not False:
        return True
    return any(
        not is_content(name) and types_at(schema, (name,)) not in (frozenset((NUMBER,)), frozenset(("boolean",)))
        for name in schema.get("properties", {})
    )


def _argument_reasons(pointer: str, test: ArgumentTest, fitting: list[ToolSchema], effect: Effect) -> Iterator[str]:
    schemas = [shape.input_schema for shape in fitting]
    found = [types_at(schema, pointer_steps(pointer)) for schema in schemas]
    if any(kinds is None for kinds in found):
        return
    kinds = frozenset[str]().union(*(kinds for kinds in found if kinds is not None))
    if not kinds:
        if test.exists is not False:
            near = nearest(pointer.removeprefix("/"), argument_names(schemas))
            hint = f" Did you mean `/{near}`?" if near else ""
            yield f"never matches: {_tools_have(fitting)} no argument `{pointer}`.{hint}"
        return
    values = allowed_values(test)
    if values is not None and values and not any(json_type(value) in kinds for value in values):
        yield f"never matches: `{pointer}` is {_type_list(kinds)} there, never what the rule wants."
    said = test.model_fields_set
    for names, wanted in (({"gt", "ge", "lt", "le"}, NUMBER), ({"glob", "beneath", "host"}, TEXT)):
        if said & names and wanted not in kinds:
            so = "never matches" if effect is Effect.ALLOW else "matches every call, because its test always fails"
            yield f"{so}: `{pointer}` is {_type_list(kinds)} there, never a {wanted}."


def _tools_have(fitting: list[ToolSchema]) -> str:
    return f"{_tool_list(fitting)} {'has' if len(fitting) == 1 else 'have'}"


def _tool_list(tool_schemas: list[ToolSchema]) -> str:
    return ", ".join(f"`{shape.name}`" for shape in tool_schemas[:3]) + (" …" if len(tool_schemas) > 3 else "")  # noqa: PLR2004


def _type_list(kinds: frozenset[str]) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aeio' else 'a'} {kind}" for kind in sorted(kinds))
