"""Compiles rules when a bundle is loaded, so that matching a call does as little work as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import UNREDACTED, Classification, Effect
from codesdk.domain.subjects import Subject
from codesdk.policy.facts import CallFacts, ToolFacts
from codesdk.policy.faults import Unevaluable
from codesdk.policy.matching.argument_conditions import WORKSPACE, compile_arguments, glob_matcher, normalized_folder
from codesdk.policy.matching.argument_patterns import argument_matcher
from codesdk.policy.matching.call_paths import CallPaths, call_paths
from codesdk.policy.matching.path_conditions import PathConditions
from codesdk.policy.schema.conditions import Condition
from codesdk.policy.schema.models import CommandMatcher, GlobToken, Matcher, Rule
from codesdk.policy.shell.allow_wrappers import wrapped_commands
from codesdk.policy.shell.command_analysis import analyze_argv, analyze_line, analyze_unclear
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.known_commands import known_commands
from codesdk.policy.shell.patterns import OTHER_ARGUMENTS, REST, Fit, Pattern, Token
from codesdk.policy.shell.unsafe_options import KnownCommands
from codesdk.policy.shell.workspace_paths import LinePlaces, moves, runs_elsewhere


class MatchOutcome(Enum):
    """Whether a rule matches a call."""

    NO = "no"
    MAYBE = "maybe"
    """Depends on a value that is only known at run time."""
    YES = "yes"
    PART = "part"
    """An allow rule that covers some commands of the line, but not all, or only may cover them."""
    UNSEEN = "unseen"
    """A rule that asks or denies matches no command that can be seen, and not all can be seen."""


class Match(NamedTuple):
    """The result of matching one rule."""

    verdict: MatchOutcome
    why: str = ""
    error: bool = False
    covered: frozenset[int] = frozenset()
    """Indexes of the allow view's commands that an allow rule covers."""
    command: str = ""
    """The command that an ask or deny rule matches."""
    place: tuple[Pattern, SimpleCommand] | None = None
    """The pattern and the command that match."""
    path: str = ""
    """Which path an ask or deny rule matches, and how."""
    refusals: Mapping[int, str] = MappingProxyType({})
    """Why an allow rule on the same command doesn't cover it, by index in the allow view."""


_CERTAINTY = {
    outcome: at
    for at, outcome in enumerate((MatchOutcome.NO, MatchOutcome.UNSEEN, MatchOutcome.MAYBE, MatchOutcome.YES))
}
NO = Match(MatchOutcome.NO)
YES = Match(MatchOutcome.YES)


class PolicyInput:
    """The call being decided. Its shell views are parsed once, when first needed."""

    def __init__(self, call: CallFacts, tool: ToolFacts, subject: Subject) -> None:
        self.call = call
        self.tool = tool
        self.subject = subject

    @cached_property
    def shell(self) -> ShellViews | None:
        """The views of the call's command; None if its input has no command."""
        given: Mapping[str, Any] = self.call.input
        line, argv, stdin = given.get("command"), given.get("argv"), given.get("stdin")
        if line is None and argv is None:
            return None
        script = stdin if isinstance(stdin, str) else None
        if isinstance(line, str) and argv is None:
            return analyze_line(line, script)
        if line is None and isinstance(argv, list) and all(isinstance(word, str) for word in argv):
            return analyze_argv(argv, script)
        return analyze_unclear((line, argv), script)

    @cached_property
    def places(self) -> LinePlaces:
        """Where the call's commands may run."""
        shell, folder = self.shell, self.call.input.get("cwd", "")
        start = folder if isinstance(folder, str) else ".."
        view = shell.allow_view if shell is not None else None
        return LinePlaces(view or (), start, moves_in_loop=shell is not None and shell.moves_in_loop)

    @cached_property
    def paths(self) -> CallPaths:
        """The paths that the call names, and the directories that it reads."""
        return call_paths(self.call.name, self.call.input, self.shell)


class CompiledMatcher:
    """A compiled `Matcher`, split into tests on the tool, the subject and the input."""

    def __init__(self, matcher: Matcher, known: KnownCommands | None = None) -> None:
        self._matcher = matcher
        self._tool = glob_matcher(matcher.tool) if matcher.tool else None
        self._server = glob_matcher(matcher.server) if matcher.server else None
        self._classification = frozenset(matcher.classification) if matcher.classification else None
        self._subject = _subject_tests(matcher)
        self._arguments = compile_arguments(matcher.args) if matcher.args else None
        self._condition = Condition(matcher.when) if matcher.when else None
        self._paths = PathConditions(matcher.paths) if matcher.paths else None
        self.patterns = _patterns(matcher.command, known or known_commands()) if matcher.command else ()
        self.words = _first_words(self.patterns)
        """First words that the patterns can match; None if any word can."""
        self._any_word = tuple(pattern for pattern in self.patterns if pattern.tokens[0].glob is not None)
        self._by_word = {
            word: tuple(pattern for pattern in self.patterns if pattern.tokens[0].fits(word))
            for pattern in self.patterns
            for word in pattern.tokens[0].words
        }

    def fits_tool(self, name: str, classification: Classification) -> str:
        """Return why the tool doesn't match; empty if it does."""
        if self._tool is not None and not self._tool(name):
            return "another tool"
        if self._server is not None and not self._server(name.partition(".")[0]):
            return "another server"
        if self._classification is not None and classification not in self._classification:
            return "another classification"
        return ""

    def fits_subject(self, subject: Subject) -> str:
        """Return why the subject doesn't match; empty if it does."""
        for why, test in self._subject:
            if not test(subject):
                return why
        return ""

    def keys(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield index keys, one list per dimension. A call that matches has at least one key of each list."""
        if self.words is not None and self.patterns and self._arguments is None and self._condition is None:
            yield [("word", word) for word in self.words]
        for kind, names in (
            ("role", self._matcher.roles),
            ("principal", _literal_names(self._matcher.principal)),
            ("tenant", _literal_names(self._matcher.tenant)),
        ):
            if names:
                yield [(kind, name) for name in names]
        # Arguments are tested in order. Only the first is always tested, and an error in it must not be skipped.
        for pointer, test in list((self._matcher.args or {}).items())[:1]:
            told = test.model_fields_set
            if told == {"beneath"} and test.beneath:
                folders = [normalized_folder(root) for root in test.beneath]
                if None not in folders:
                    yield [("folder", pointer, folder) for folder in folders]
            elif told in ({"eq"}, {"in_"}) and (values := [test.eq] if "eq" in told else list(test.in_ or ())):
                yield [("value", pointer, isinstance(value, bool), value) for value in values]

    @property
    def depends_on_input(self) -> bool:
        """Whether matching depends on the call's arguments."""
        return self._arguments is not None or self._condition is not None or self.reads_commands

    @property
    def reads_commands(self) -> bool:
        """Whether matching depends on what commands run."""
        return bool(self.patterns) or self._paths is not None

    def fits_input(self, question: PolicyInput, *, strict: bool) -> Match:
        """Match the arguments. `strict` requires every command to be covered; otherwise one possible match is enough.

        Raises:
            Unevaluable: an argument has the wrong type for its test.
        """
        if self._arguments is not None:
            why = self._arguments(question.call.input)
            if why:
                return Match(MatchOutcome.NO, why)
        if self._condition is not None and not self._condition.holds(question.call, question.tool, question.subject):
            return Match(MatchOutcome.NO, "`when` is false")
        shell = question.shell
        if self.patterns and shell is None:
            return Match(MatchOutcome.NO, "the input has no command")
        named = self._match_paths(question, self._paths, strict=strict) if self._paths is not None else YES
        if shell is None or not self.patterns or named.verdict is MatchOutcome.NO:
            return named
        if strict:
            return self._covers(shell, question)
        found = self._may_match(shell)
        return min(found, named, key=lambda match: _CERTAINTY[match.verdict])._replace(path=named.path)

    def _match_paths(self, question: PolicyInput, conditions: PathConditions, *, strict: bool) -> Match:
        if strict:
            if question.shell is not None:
                return Match(MatchOutcome.NO, "what a command opens is not certain from its paths")
            found = conditions.covers(question.paths)
            return YES if found.fit is Fit.YES else Match(MatchOutcome.NO, found.why)
        found = conditions.may_match(question.paths)
        if found.fit is not Fit.NO:
            outcome = MatchOutcome.YES if found.fit is Fit.YES else MatchOutcome.MAYBE
            return Match(outcome, found.why, command=found.command, path=found.why)
        opaque = question.shell.opaque if question.shell is not None else ""
        return Match(MatchOutcome.UNSEEN, opaque) if opaque else Match(MatchOutcome.NO, found.why)

    def _patterns_for(self, *words: str) -> Iterable[Pattern]:
        """Return the patterns that can match a command with one of these names."""
        if words[0] == words[-1]:
            return self._by_word.get(words[0], self._any_word)
        return [pattern for word in words for pattern in self._by_word.get(word, self._any_word)]

    def _covers(self, shell: ShellViews, question: PolicyInput) -> Match:
        folder, places = question.call.input.get("cwd"), question.places
        why = shell.refusal if shell.allow_view is None else self._arguments_refusal(shell, folder)
        if shell.allow_view is None or why:
            return self._covers_part(shell, why)
        covered: set[int] = set()
        why, refusals = "", dict[int, str]()
        for index, command in enumerate(shell.allow_view):
            refusal, named = self._coverage(command, places)
            if refusal:
                why = why or refusal
                if named:
                    refusals[index] = refusal
            else:
                covered.add(index)
        if len(covered) == len(shell.allow_view):
            return Match(MatchOutcome.YES, covered=frozenset(covered))
        return self._covers_part(shell, why, frozenset(covered))._replace(refusals=refusals)

    def _arguments_refusal(self, shell: ShellViews, folder: object) -> str:
        """Return why the arguments of the line can't be compared with those that the rule lists."""
        listed = next((pattern.arguments for pattern in self.patterns if pattern.arguments is not None), None)
        if listed is None:
            return ""
        if folder not in (None, ".", WORKSPACE) or any(
            moves(command) or runs_elsewhere(command) for command in shell.seen
        ):
            return "its arguments count from the workspace, and the line runs in another directory"
        for word in shell.redirections:
            if word.text != "/dev/null" and not (word.text.isascii() and word.text.isdigit()) and not listed(word):
                return f"does not cover the file `{word.text[:40]}` of a redirection"
        return ""

    def _covers_part(self, shell: ShellViews, why: str, covered: frozenset[int] = frozenset()) -> Match:
        """Return PART if the line may run a command of the patterns: the rule's obligations then hold."""
        part = bool(covered) or self._may_match(shell).verdict in (MatchOutcome.YES, MatchOutcome.MAYBE)
        return Match(MatchOutcome.PART if part else MatchOutcome.NO, why, covered=covered)

    def _coverage(self, command: SimpleCommand, places: LinePlaces) -> tuple[str, bool]:
        """Return why the rule doesn't cover a command (empty if it does), and whether it names the command at all."""
        refusal = self._coverage_refusal(command, places)
        if not refusal:
            return "", True
        named = self._names(command)
        for form in _other_forms(command):
            other = self._coverage_refusal(form, places)
            if not other:
                return "", True
            if not named and self._names(form):
                refusal, named = other, True
        return refusal, named

    def _coverage_refusal(self, command: SimpleCommand, places: LinePlaces) -> str:
        """Return why no pattern covers a command of the allow view; empty if one does."""
        name = command.words[0].text
        by_path = "/" in name and self._names(command)
        refusal = f"names `{command.name[:40]}`, not the program at `{name[:40]}`" if by_path else ""
        for pattern in self._patterns_for(command.name, name) if by_path else self._patterns_for(name):
            other = pattern.allows(command, places)
            if not other:
                return ""
            if not (by_path and other.endswith("is another command")) and (not refusal or other != OTHER_ARGUMENTS):
                refusal = other
        return refusal or f"`{name[:40]}` is another command"

    def _names(self, command: SimpleCommand) -> bool:
        return any(pattern.fits_name(command) for pattern in self.patterns)

    def _may_match(self, shell: ShellViews) -> Match:
        maybe: tuple[Pattern, SimpleCommand] | None = None
        for command in shell.possible:
            for pattern in self._patterns_for(command.name, command.words[0].text):
                fit = pattern.may_match(command)
                if fit is Fit.YES:
                    return Match(MatchOutcome.YES, command=command.shown, place=(pattern, command))
                maybe = maybe or ((pattern, command) if fit else None)
        if maybe:
            why = "an argument is only known when it runs"
            return Match(MatchOutcome.MAYBE, why, command=maybe[1].shown, place=maybe)
        return (
            Match(MatchOutcome.UNSEEN, shell.opaque)
            if shell.opaque
            else Match(MatchOutcome.NO, "no such command in it")
        )


@dataclass(frozen=True)
class CompiledRule:
    """A compiled rule of a bundle."""

    rule: Rule
    file: str
    line: int
    hash: str = field(repr=False)
    matcher: CompiledMatcher = field(repr=False, compare=False)
    unless: CompiledMatcher | None = field(repr=False, compare=False)
    commands: KnownCommands = field(repr=False, compare=False)
    """The commands that the rule's bundle knows."""
    layer: str = ""
    """`tenant` or `session`; empty for the shared bundle."""

    @property
    def id(self) -> str:
        """The rule's id with its layer as prefix, because two layers may use the same id."""
        return f"{self.layer}/{self.rule.id}" if self.layer else self.rule.id

    def expired(self, day: date) -> bool:
        """Return whether the rule has expired before `day`."""
        return self.rule.expires is not None and self.rule.expires < day

    @property
    def effect(self) -> Effect:
        """The rule's effect."""
        return self.rule.effect

    def granted(self) -> CompiledRule:
        """Return the rule as an allow, for a grant check: it must cover the call completely."""
        return replace(self, rule=self.rule.model_copy(update={"effect": Effect.ALLOW}))

    def match(self, question: PolicyInput) -> Match:
        """Match a call whose tool already matches. An error counts as a match for ask and deny, and not for allow."""
        why = self.matcher.fits_subject(question.subject)
        if why:
            return Match(MatchOutcome.NO, why)
        allows = self.effect is Effect.ALLOW
        try:
            found = self.matcher.fits_input(question, strict=allows)
        except Unevaluable as error:
            found = Match(MatchOutcome.NO if allows else MatchOutcome.YES, str(error), error=True)
        if found.verdict is MatchOutcome.NO or self.unless is None:
            return found
        return self._apply_unless(question, found, self.unless)

    def _apply_unless(self, question: PolicyInput, found: Match, unless: CompiledMatcher) -> Match:
        """Apply `unless`: an ask or deny needs a certain match to be lifted, an allow only a possible one."""
        tool = question.tool
        if unless.fits_tool(tool.name, tool.classification) or unless.fits_subject(question.subject):
            return found
        allows = self.effect is Effect.ALLOW
        try:
            excepted = unless.fits_input(question, strict=not allows)
        except Unevaluable as error:
            return Match(
                MatchOutcome.NO if allows else found.verdict, f"unless: {error}", error=True, covered=found.covered
            )
        holds = excepted.verdict is MatchOutcome.YES or (allows and excepted.verdict is MatchOutcome.MAYBE)
        return Match(MatchOutcome.NO, "its exception holds") if holds else found


def compile_rule(rule: Rule, file: str, line: int, commands: KnownCommands | None = None) -> CompiledRule:
    """Compile one rule; without `commands`, for a bundle that adds none.

    Raises:
        NotCanonical: a number in it can't be represented exactly in JSON.
    """
    written = rule.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"examples"}, context=UNREDACTED)
    commands = commands or known_commands()
    if commands.additions and any(each is not None and each.command is not None for each in (rule, rule.unless)):
        written = {**written, "commands": commands.additions}
    return CompiledRule(
        rule=rule,
        file=file,
        line=line,
        hash=content_hash(written),
        matcher=CompiledMatcher(rule, commands),
        unless=CompiledMatcher(rule.unless, commands) if rule.unless else None,
        commands=commands,
    )


def _other_forms(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """Yield what a rule may cover in place of the command: what a wrapper runs, or the command that it is a part of."""
    yield from wrapped_commands(command)
    context = command.context
    if context.whole is not None:
        yield SimpleCommand(context.whole.words, command.assignments, replace(context, whole=None))


def _subject_tests(matcher: Matcher) -> list[tuple[str, Callable[[Subject], bool]]]:
    tests: list[tuple[str, Callable[[Subject], bool]]] = []
    if matcher.tenant:
        tenant = glob_matcher(matcher.tenant)
        tests.append(("another tenant", lambda subject: tenant(subject.tenant_id)))
    if matcher.principal:
        principal = glob_matcher(matcher.principal)
        tests.append(("another principal", lambda subject: principal(subject.principal_id)))
    if matcher.roles:
        roles = frozenset(matcher.roles)
        tests.append(("another role", lambda subject: not roles.isdisjoint(subject.roles)))
    if matcher.mode:
        modes = frozenset(matcher.mode)
        tests.append(("another mode", lambda subject: subject.permission_mode in modes))
    if matcher.runtime:
        runtime = glob_matcher(matcher.runtime)
        tests.append(("another runtime", lambda subject: runtime(subject.runtime)))
    if matcher.labels:
        labels = {name: glob_matcher(patterns) for name, patterns in matcher.labels.items()}
        tests.append(
            (
                "other labels",
                lambda subject: all(
                    name in subject.labels and fits(subject.labels[name]) for name, fits in labels.items()
                ),
            )
        )
    return tests


def _literal_names(names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names, or nothing if one of them is a pattern."""
    return () if any(mark in name for name in names or () for mark in "*?[") else names or ()


def _patterns(command: CommandMatcher, known: KnownCommands) -> tuple[Pattern, ...]:
    patterns = []
    for tokens in command.any_of:
        rest = tokens[-1] == REST
        patterns.append(
            Pattern(
                tokens=tuple(_token(token) for token in (tokens[:-1] if rest else tokens)),
                rest=rest,
                any_flag=command.any_flag,
                forbid_flags=command.forbid_flags,
                env=frozenset(command.env),
                trust_arguments=command.trust_arguments,
                known=known,
                programs_in=glob_matcher(command.programs_in) if command.programs_in else None,
                write_beneath=command.write_beneath,
                background=command.background,
                arguments=argument_matcher(command.arguments) if command.arguments else None,
            )
        )
    return tuple(patterns)


def _token(token: str | GlobToken | list[str]) -> Token:
    if isinstance(token, GlobToken):
        return Token(frozenset(), token.glob)
    return Token(frozenset([token] if isinstance(token, str) else token))


def _first_words(patterns: tuple[Pattern, ...]) -> frozenset[str] | None:
    if any(pattern.tokens[0].glob is not None for pattern in patterns):
        return None
    return frozenset(word for pattern in patterns for word in pattern.tokens[0].words)
