"""Finds rules that can't do what they say, with the reason: unknown tools and arguments, contradictions, wrong types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from codesdk.documents import ValuePath, nearest
from codesdk.domain.decisions import Effect
from codesdk.policy.faults import Unevaluable
from codesdk.policy.linting.containment import allowed_values, contains
from codesdk.policy.linting.tool_schemas import ToolCatalog, ToolSchema, argument_names, json_type, types_at
from codesdk.policy.matching.argument_conditions import compile_test, normalized_folder, pointer_steps
from codesdk.policy.matching.call_paths import is_content
from codesdk.policy.matching.compiled_rules import CompiledMatcher, CompiledRule
from codesdk.policy.schema.conditions import BOOLEAN, NUMBER, TEXT, argument_paths, constant_value, type_problems
from codesdk.policy.schema.models import ArgumentTest, CommandMatcher, Matcher, PatternToken, Rule


class RuleProblem(NamedTuple):
    """Why a rule can't work, and the keys that lead to the place in the rule."""

    message: str
    path: ValuePath = ()


def rule_problems(rule: CompiledRule, tools: ToolCatalog) -> Iterator[RuleProblem]:
    """Yield errors that would make the rule, or its `unless`, silently do nothing or match everything."""
    written = rule.rule
    matchers: list[tuple[Matcher, CompiledMatcher, ValuePath]] = [(written, rule.matcher, ())]
    if written.unless is not None and rule.unless is not None:
        # Without tools of its own, `unless` is about those of the rule.
        own = {"tool": written.unless.tool or written.tool, "server": written.unless.server or written.server}
        matchers.append((written.unless.model_copy(update=own), rule.unless, ("unless",)))
    for matcher, compiled, lead in matchers:
        if not written.absent_ok:
            yield from _unknown(matcher if not lead else written.unless or matcher, tools, lead)
        for problem in _matcher_problems(matcher, compiled, written.effect, tools, is_unless=bool(lead)):
            yield problem._replace(path=(*lead, *problem.path))


def unmatchable_reasons(rule: CompiledRule, day: date | None) -> Iterator[str]:
    """Yield why the rule has no effect on `day` or later, though it may have been meant so."""
    written = rule.rule
    if day is not None and rule.expired(day):
        yield f"expired on {written.expires}; it has no effect any more."
    if written.command is not None and rule.effect is not Effect.ALLOW:
        yield from _words_with_spaces(written.command)
    if written.when is not None and constant_value(written.when) is False:
        yield "never matches: `when` is false of every call."
    if written.unless is not None and _unless_always_holds(written):
        yield "never matches: its `unless` holds wherever it would."


def _unknown(matcher: Matcher, tools: ToolCatalog, lead: ValuePath) -> Iterator[RuleProblem]:
    """Yield the tools and servers that don't exist. With a misspelled name, the rule would be absent."""
    for at in tools.unknown_names(matcher.tool or ()):
        name = (matcher.tool or ())[at]
        servers = {f"{server}.*" for server in tools.servers}
        yield _unknown_name("tool", name, servers if name.endswith(".*") else tools.names, (*lead, "tool", at))
    for at in tools.unknown_servers(matcher.server or ()):
        yield _unknown_name("server", (matcher.server or ())[at], tools.servers, (*lead, "server", at))


def _unknown_name(kind: str, name: str, known: Collection[str], path: ValuePath) -> RuleProblem:
    near = nearest(name, known)
    hint = f" Did you mean `{near}`?" if near else ""
    absent = f"If the {kind} may be missing from an installation, write `absent_ok: true`."
    return RuleProblem(f"names the unknown {kind} `{name}`.{hint} {absent}", path)


def _matcher_problems(
    matcher: Matcher, compiled: CompiledMatcher, effect: Effect, tools: ToolCatalog, *, is_unless: bool
) -> Iterator[RuleProblem]:
    """Yield contradictions in the conditions, and what can't hold of any tool that they name."""
    never = "has an `unless` that never holds" if is_unless else "never matches"
    for pointer, test in (matcher.args or {}).items():
        why = _test_reason(test)
        if why:
            yield RuleProblem(f"{never}: `{pointer}` {why}.", ("args", pointer))
    for why in _command_reasons(matcher.command) if matcher.command is not None else ():
        yield RuleProblem(f"{never}: {why}.", ("command",))
    if matcher.tool is None and matcher.server is None:
        return
    named = tools.matching(matcher.tool)
    if named is not None:
        yield from _tool_problems(_Conditions(matcher, compiled, never, effect), list(named))


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
    for pattern in command.any_of:
        for word in _plain_words(pattern[:1]):
            if " " in word:
                yield f"no command is named `{word}`; write [{', '.join(word.split())}]"


def _words_with_spaces(command: CommandMatcher) -> Iterator[str]:
    for pattern in command.any_of:
        for word in _plain_words(pattern[1:]):
            if " " in word:
                yield f"matches `{word}` only where it is one word, in quotes; for several, write [{', '.join(word.split())}]."


def _plain_words(tokens: Sequence[PatternToken]) -> Iterator[str]:
    for token in tokens:
        yield from [token] if isinstance(token, str) else token if isinstance(token, list) else ()


def _unless_always_holds(rule: Rule) -> bool:
    if rule.unless is None or not contains(rule.unless, rule):
        return False
    # An ask or a deny also matches if its arguments can't be read, and then `unless` does not apply.
    return rule.effect is Effect.ALLOW or not CompiledMatcher(rule.unless).depends_on_input


class _Conditions(NamedTuple):
    """The conditions of a rule, or of its `unless`."""

    written: Matcher
    compiled: CompiledMatcher
    never: str
    """What to say of conditions that can't hold."""
    effect: Effect


def _tool_problems(conditions: _Conditions, named: list[ToolSchema]) -> Iterator[RuleProblem]:
    written, never = conditions.written, conditions.never
    whys = {shape.name: conditions.compiled.fits_tool(shape.name, shape.classification) for shape in named}
    fitting = [shape for shape in named if not whys[shape.name]]
    if not fitting:
        if any("server" in why for why in whys.values()):
            if written.tool is not None:  # otherwise the server is unknown, which is reported separately
                other = f"{_tool_list(named)} does not come from {', '.join(written.server or ())}"
                yield RuleProblem(f"{never}: {other}.", ("server",))
            return
        told = ", ".join(f"`{shape.name}` is {shape.classification}" for shape in named[:3])
        about = f"the rule is about {', '.join(written.classification or ())}"
        yield RuleProblem(f"{never}: {told}, and {about}.", ("classification",))
        return
    schemas = [shape.input_schema for shape in fitting]
    if written.command is not None and not any(
        types_at(schema, (name,)) != frozenset() for schema in schemas for name in ("command", "argv")
    ):
        yield RuleProblem(f"{never}: {_tools_have(fitting)} no command.", ("command",))
    if written.paths is not None and not any(_may_name_path(schema) for schema in schemas):
        yield RuleProblem(f"{never}: {_tools_have(fitting)} no argument that may be a path.", ("paths",))
    for pointer, test in (written.args or {}).items():
        for message in _argument_reasons(pointer, test, fitting, conditions):
            yield RuleProblem(message, ("args", pointer))
    if written.when is not None:
        for message in _condition_reasons(written.when, fitting):
            yield RuleProblem(f"has a condition that can't be evaluated: {message}", ("when",))


def _condition_reasons(condition: str, fitting: list[ToolSchema]) -> Iterator[str]:
    kinds: dict[str, str] = {}
    for path in dict.fromkeys(argument_paths(condition)):
        found = [types_at(shape.input_schema, path) for shape in fitting]
        if all(types == frozenset() for types in found):
            yield f"{_tools_have(fitting)} no argument `{'.'.join(path)}`.{_near(path[0], fitting)}"
        elif len(path) == 1 and None not in found:
            types = frozenset[str]().union(*(types for types in found if types is not None))
            if len(types) == 1 and (kind := next(iter(types))) in (TEXT, NUMBER, BOOLEAN):
                kinds[path[0]] = kind
    for problem in type_problems(condition, kinds) if kinds else ():
        yield f"{problem}."


def _may_name_path(schema: Mapping[str, Any]) -> bool:
    """Return whether some argument of the tool counts as a path, or as a command."""
    if schema.get("additionalProperties") is not False:
        return True
    return any(
        not is_content(name) and types_at(schema, (name,)) not in (frozenset((NUMBER,)), frozenset(("boolean",)))
        for name in schema.get("properties", {})
    )


def _argument_reasons(
    pointer: str, test: ArgumentTest, fitting: list[ToolSchema], conditions: _Conditions
) -> Iterator[str]:
    never = conditions.never
    found = [types_at(shape.input_schema, pointer_steps(pointer)) for shape in fitting]
    if any(kinds is None for kinds in found):
        return
    kinds = frozenset[str]().union(*(kinds for kinds in found if kinds is not None))
    if not kinds:
        if test.exists is not False:
            hint = _near(pointer.removeprefix("/"), fitting, "/")
            yield f"{never}: {_tools_have(fitting)} no argument `{pointer}`.{hint}"
        return
    values = allowed_values(test)
    if values is not None and values and not any(json_type(value) in kinds for value in values):
        yield f"{never}: `{pointer}` is {_type_list(kinds)} there, never what the rule wants."
    said = test.model_fields_set
    for names, wanted in (({"gt", "ge", "lt", "le"}, NUMBER), ({"glob", "beneath", "host"}, TEXT)):
        if said & names and wanted not in kinds:
            always = conditions.effect is not Effect.ALLOW and "unless" not in never
            so = "matches every call, because its test always fails" if always else never
            yield f"{so}: `{pointer}` is {_type_list(kinds)} there, never a {wanted}."


def _near(name: str, fitting: list[ToolSchema], lead: str = "") -> str:
    near = nearest(name, argument_names(shape.input_schema for shape in fitting))
    return f" Did you mean `{lead}{near}`?" if near else ""


def _tools_have(fitting: list[ToolSchema]) -> str:
    return f"{_tool_list(fitting)} {'has' if len(fitting) == 1 else 'have'}"


def _tool_list(tool_schemas: list[ToolSchema]) -> str:
    return ", ".join(f"`{shape.name}`" for shape in tool_schemas[:3]) + (" …" if len(tool_schemas) > 3 else "")  # noqa: PLR2004


def _type_list(kinds: frozenset[str]) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aeio' else 'a'} {kind}" for kind in sorted(kinds))
