"""Unsafe arguments: arguments with which a command runs code or writes more than its name suggests. `...` never covers them.

`known_commands.yaml` lists whole categories instead of known exploits: for each command, every documented way to run a
program, load code or write a file through an argument. `per_command_checks` reads arguments that are programs themselves.
Words that a rule spells out are the author's decision. `trust_arguments: true` disables the check for a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from codesdk.policy.schema.command_options import ArgumentEffect
from codesdk.policy.shell.options import Options, Takes
from codesdk.policy.shell.per_command_checks import Check
from codesdk.policy.shell.words import Word

_MAX_DEPTH = 8
"""Levels of commands that run commands: `uv run python -m pytest`."""
_UNKNOWN_OPTION = "--?"
_MAX_READINGS = 4
"""Words of a level that may be its first operand, depending on what unknown options before them mean."""


class UnsafeArgument(NamedTuple):
    """An argument that `...` doesn't cover."""

    at: int
    """Index of its word; 0 if the command is unsafe without any argument."""
    effect: ArgumentEffect | None = None
    """None if it can run or write something, depending on a value."""


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command or subcommand whose unsafe arguments are known."""

    options: Options | None
    """None if only a check reads the arguments."""
    subcommands: Mapping[str, KnownCommand] = field(default_factory=dict, repr=False)
    unlisted: ArgumentEffect | None = None
    does: ArgumentEffect | None = None
    unless: frozenset[str] = frozenset()
    arguments: ArgumentEffect | None = None
    no_operand: ArgumentEffect | None = None
    until_operand: bool = False
    at_files: bool = False
    command_at: int | None = None
    command_options: frozenset[str] = frozenset()
    check: Check | None = None
    operands: int = 0
    """How many operands matter, from the first."""
    lists: tuple[tuple[str, ArgumentEffect], ...] = ()
    """The unsafe options as they are written, for people."""
    lists_subcommands: tuple[tuple[str, ArgumentEffect], ...] = ()
    permits: tuple[tuple[str, ArgumentEffect], ...] = ()
    """Those that only the bundle declares harmless."""


class KnownCommands:
    """The commands whose unsafe arguments are known, by name."""

    def __init__(self, compiled: Callable[[str], KnownCommand | None], additions: str = "") -> None:
        """Look commands up with `compiled`, each once."""
        self._compiled = compiled
        self._by_name: dict[str, KnownCommand] = {}
        self.additions = additions
        """Hash of the entries that a bundle adds; empty without them."""

    def unsafe_arguments(self, name: str, words: Sequence[Word]) -> Iterator[UnsafeArgument]:
        """Yield the arguments in `words` that make the command do more than its name suggests, some of them twice."""
        known = self.find(name)
        if known is None or (known.options is None and known.check is None):
            return iter(())
        return _Reading(self, words).of_command(known, 0)

    def find(self, name: str) -> KnownCommand | None:
        """Return the command with that name, perhaps with a version at its end: `pip3.11`, `pytest-3`."""
        found = self._by_name.get(name)
        if found is None:
            found = self._compiled(name)
            if found is None:  # not kept: an agent may make up any number of names
                plain = name.rstrip("0123456789.-")
                return self.find(plain) if plain and plain != name else None
            self._by_name[name] = found
        return found

    def innermost(self, words: Sequence[Word]) -> tuple[KnownCommand, bool] | None:
        """Return what is known of the command that further arguments would belong to; None if nothing is.

        The second value is whether the words name a subcommand of it, of which nothing else is known.
        """
        known = self.find(words[0].text)
        if known is None:
            return None
        reading = _Reading(self, words)
        for _ in reading.of_command(known, 0):
            pass
        return None if reading.innermost is None else (reading.innermost, reading.names_subcommand)


class _Reading:
    """One walk through the words of a command, its subcommands and the commands that it runs."""

    __slots__ = ("_commands", "_depth", "_removed_dashes", "_words", "innermost", "names_subcommand")

    def __init__(self, commands: KnownCommands, words: Sequence[Word]) -> None:
        self._commands = commands
        self._words = words
        self._depth = 0
        self._removed_dashes = 0
        """Index of a `--` that an outer command removes before it runs the inner one."""
        self.innermost: KnownCommand | None = None
        self.names_subcommand = False

    def of_command(self, known: KnownCommand, start: int) -> Iterator[UnsafeArgument]:
        """Yield the unsafe arguments of the command at `start`."""
        if known.check is not None:
            words = self._words[start:] if start else self._words
            if not known.check.reads_values:
                for at, word in enumerate(words):
                    if word.dynamic:
                        yield UnsafeArgument(start + at)
            for at in known.check.find(words):
                yield UnsafeArgument(start + at)
        if known.options is not None:
            yield from self._of_level(known, known.options, start)
        else:
            self.innermost = known

    def _of_level(self, known: KnownCommand, options: Options, start: int) -> Iterator[UnsafeArgument]:  # noqa: C901, PLR0912, PLR0915 (a branch for each kind of word)
        """Yield the unsafe arguments of the command or subcommand at `start`. Tries both readings of unknown options."""
        self.innermost, self.names_subcommand = known, False
        words, count = self._words, len(self._words)
        if known.arguments is not None:
            yield from (UnsafeArgument(at, known.arguments) for at in (range(start + 1, count) or (0,)))
            return
        operands = readings = 0
        reads_input = known.no_operand is not None
        option = ""  # the one before, which may take the word as its value
        at = start
        while (at := at + 1) < count:
            word = words[at]
            text = word.text
            if (word.dynamic or word.glob) and word.may_be_option:  # a property costs time for each word
                yield UnsafeArgument(at)
                option = _UNKNOWN_OPTION
            elif text == "--":
                if at == self._removed_dashes:
                    continue
                takes = options.takes_value(option)
                if takes is Takes.NO:
                    if known.operands > operands:
                        yield from self._operands(known, at + 1, operands)
                        reads_input = reads_input and at + 1 == count
                    break
                option = _UNKNOWN_OPTION if takes is Takes.UNKNOWN else ""
            elif text[:1] == "-" and text != "-":
                effect = options.effect(text)
                if effect is not None and not options.is_harmless(text, words[at + 1] if at + 1 < count else None):
                    yield UnsafeArgument(at, effect)
                    reads_input = reads_input and effect is not ArgumentEffect.RUNS
                option = text
                command = options.value_of(text, known.command_options) if known.command_options else None
                if command is not None:
                    yield from self._nested(at, command) if command else self._nested(at + 1)
                    if known.until_operand:
                        return
            elif operands >= known.operands:
                option = ""
            else:
                takes, option = options.takes_value(option), ""
                if takes is Takes.YES:
                    continue
                reads_input = False
                operands += 1
                ends = yield from self._operand(known, at, operands)
                if takes is Takes.NO:
                    if ends:
                        return
                else:
                    operands -= 1
                    readings += 1
                    if readings > _MAX_READINGS:
                        yield UnsafeArgument(at)
                        return
        if reads_input and not self._has_option(known, start):
            yield UnsafeArgument(0, known.no_operand)

    def _operands(self, known: KnownCommand, at: int, operands: int) -> Iterator[UnsafeArgument]:
        """Yield the unsafe ones among the words from `at` on, which are operands."""
        for number, index in enumerate(range(at, len(self._words)), operands + 1):
            ends = yield from self._operand(known, index, number)
            if ends:
                return

    def _operand(self, known: KnownCommand, at: int, number: int) -> Generator[UnsafeArgument, None, bool]:
        """Yield what is unsafe about an operand, and return whether the rest of the words is not this level's."""
        word = self._words[at]
        if known.at_files and word.text.startswith("@"):
            yield UnsafeArgument(at, ArgumentEffect.CONFIGURES)
        if word.text == "-" and known.no_operand is not None:
            yield UnsafeArgument(at, known.no_operand)
        if number == 1 and (known.subcommands or known.unlisted):
            if not word.literal or word.glob:
                yield UnsafeArgument(at)
                return False
            sub = known.subcommands.get(word.text)
            if sub is not None:
                yield from self._subcommand(sub, at)
                return True
            self.names_subcommand = True
            if known.unlisted is not None:
                yield UnsafeArgument(at, known.unlisted)
        if number == known.command_at:
            if not known.until_operand:  # `npm exec eslint -- --fix`
                self._removed_dashes = next((n for n in range(at, len(self._words)) if self._words[n].text == "--"), 0)
            yield from self._nested(at)
            return known.until_operand
        return known.until_operand and known.command_at is None

    def _subcommand(self, sub: KnownCommand, at: int) -> Iterator[UnsafeArgument]:
        if sub.does is not None and not self._has_option(sub, at):
            yield UnsafeArgument(at, sub.does)
        if sub.options is not None:
            yield from self._of_level(sub, sub.options, at)

    def _nested(self, at: int, command: str = "") -> Iterator[UnsafeArgument]:
        """Yield the command at `at`, which is run, and its unsafe arguments. `command` is its name in `-mpytest`."""
        if at >= len(self._words):
            return
        yield UnsafeArgument(at, ArgumentEffect.RUNS)
        word = self._words[at]
        # Without path and version: `node_modules/.bin/eslint`, `ruff@0.4`, `@angular/cli`.
        known = self._commands.find((command or word.text).rsplit("/", 1)[-1].partition("@")[0])
        self.innermost = known
        if known is None or not word.literal or word.glob:
            return
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            yield from (UnsafeArgument(index) for index in range(at, len(self._words)))
        else:
            yield from self.of_command(known, at)
        self._depth -= 1

    def _has_option(self, known: KnownCommand, start: int) -> bool:
        """Return whether one of the options of `unless` is among the words after the command."""
        for word in self._words[start + 1 :]:
            if word.text == "--" or not word.literal:
                return False
            if word.text in known.unless:
                return True
        return False
