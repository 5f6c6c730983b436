"""Matches command patterns: strictly for allow rules, broadly for ask and deny rules."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import translate

from codesdk.policy.schema.command_options import ArgumentEffect
from codesdk.policy.shell.commands import PLAIN_RUN, RunContext, SimpleCommand
from codesdk.policy.shell.known_commands import known_commands
from codesdk.policy.shell.unsafe_options import KnownCommands
from codesdk.policy.shell.words import Word
from codesdk.policy.shell.workspace_paths import LinePlaces, is_beneath

REST = "..."
OTHER_ARGUMENTS = "is about other arguments"
_HARMLESS_GLOBALS = {"git": frozenset(("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"))}
# Options before a subcommand that take a value. For other commands, both readings are tried.
_GLOBAL_VALUES = {
    "git": frozenset(["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--exec-path", "--attr-source"]),
    "docker": frozenset(["-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey"]),
    "cargo": frozenset(["-C", "-Z", "--config", "--color", "--manifest-path"]),
    "go": frozenset(("-C",)),
    "rm": frozenset(), "cp": frozenset(["-t", "--target-directory", "-S", "--suffix"]), "mv": frozenset(["-t", "--target-directory", "-S", "--suffix"]),
    "chmod": frozenset(("--reference",)), "chown": frozenset(("--reference", "--from")),
}  # fmt: skip
_SYNONYMS = {
    "r": ("--recursive", "-R"),
    "R": ("--recursive", "-r"),
    "f": ("--force",),
    "A": ("--all",),
    "a": ("--all",),
    "i": ("--interactive", "--in-place"),
}


EFFECT_PHRASES = {
    ArgumentEffect.RUNS: "runs code",
    ArgumentEffect.WRITES: "writes files",
    ArgumentEffect.DELETES: "deletes files",
    ArgumentEffect.CONFIGURES: "reads configuration",
    ArgumentEffect.NETWORK: "sends or fetches data",
    None: "can run or write something",
}
"""Descriptions, for messages, of an argument that `...` doesn't cover."""


class Fit(IntEnum):
    """Whether a pattern matches a command of the ask-deny view."""

    NO = 0
    MAYBE = 1
    """Matches for some values of an unknown argument."""
    YES = 2


class Token:
    """One position of a pattern: fixed words, or a glob."""

    __slots__ = ("glob", "option", "words")

    def __init__(self, words: frozenset[str], glob: str | None = None) -> None:
        self.words = words
        self.glob = re.compile(translate(glob)) if glob is not None else None
        self.option = bool(words) and all(word.startswith("-") and len(word) > 1 for word in words)
        """Every alternative is an option, which may be anywhere among the arguments."""

    def fits(self, text: str) -> bool:
        """Return whether the word matches this position."""
        return text in self.words or (self.glob is not None and self.glob.match(text) is not None)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled command pattern."""

    tokens: tuple[Token, ...]
    rest: bool
    any_flag: tuple[str, ...] = ()
    """At least one of these must be present."""
    forbid_flags: tuple[str, ...] = ()
    """None of these may be present."""
    env: frozenset[str] = frozenset()
    """Variables that may be set in front of the command."""
    trust_arguments: bool = False
    known: KnownCommands = field(default_factory=known_commands, repr=False)
    """The commands whose unsafe arguments `...` doesn't cover."""
    programs_in: Callable[[str], bool] | None = None
    """Whether programs in this folder of the workspace match by their name alone."""
    write_beneath: tuple[str, ...] = ()
    """Folders of the workspace into which the command's output may be redirected."""
    background: bool = False
    arguments: Callable[[Word], bool] | None = None
    """What the words that `...` covers must be."""

    def allows(self, command: SimpleCommand, places: LinePlaces) -> str:
        """Return why the pattern doesn't cover a command of the allow view; empty if it does."""
        if not self.tokens[0].fits(command.words[0].text) and not self._is_vouched(command, places):
            return f"`{command.words[0].text[:40]}` is another command"
        words = self._without_harmless_globals(command)
        if not self._fits_words(words):
            return OTHER_ARGUMENTS
        if command.context is not PLAIN_RUN:
            refusal = self._context_refusal(command.context, places)
            if refusal:
                return refusal
        for name, _ in command.assignments:
            if name not in self.env:
                return f"does not allow setting the variable `{name[:40]}`"
        if self.arguments is not None:
            for word in words[len(self.tokens) :]:
                if not self.arguments(word):
                    return f"does not cover the argument `{word.text[:40]}`"
        return self._option_refusal(command.name, words)

    def fits_name(self, command: SimpleCommand) -> bool:
        """Return whether the pattern is about the command, by its name or by a path to a program of that name."""
        return self.tokens[0].fits(command.words[0].text) or self.tokens[0].fits(command.name)

    def _is_vouched(self, command: SimpleCommand, places: LinePlaces) -> bool:
        """Return whether the command is named by a path into a folder of `programs_in`."""
        if self.programs_in is None or "/" not in command.words[0].text or not self.tokens[0].fits(command.name):
            return False
        programs = places.programs(command.words[0].text)
        return bool(programs) and all(self.programs_in(posixpath.dirname(program) or ".") for program in programs)

    def _context_refusal(self, context: RunContext, places: LinePlaces) -> str:
        if context.background and not self.background:
            return "does not allow running it in the background"
        for path in context.writes:
            files = places.files(path)
            if not files or not all(self._may_write(file) for file in files):
                return f"does not allow writing its output to `{(path or 'a file')[:40]}`"
        return ""

    def _may_write(self, file: str) -> bool:
        folder = posixpath.dirname(file) or "."
        vouched = self.programs_in is not None and self.programs_in(folder)
        return is_beneath(file, self.write_beneath) and not vouched and ".git" not in file.lower().split("/")

    def _without_harmless_globals(self, command: SimpleCommand) -> tuple[Word, ...]:
        """Drop harmless global options: `git --no-pager log` counts as `git log`."""
        words = command.words
        harmless = _HARMLESS_GLOBALS.get(command.name)
        if not harmless or len(words) == 1 or self.tokens[-1].option:
            return words
        if len(self.tokens) > 1 and self.tokens[1].fits(words[1].text):  # the rule names the option
            return words
        at = 1
        while at < len(words) and words[at].literal and not words[at].glob:
            # `git -C there log` only changes the directory, like `cd there && git log`.
            step = (
                1
                if words[at].text in harmless
                else 2
                if command.name == "git" and _is_folder(words[at : at + 2])
                else 0
            )
            if not step:
                break
            at += step
        return words if at == 1 else (words[0], *words[at:])

    def _fits_words(self, words: tuple[Word, ...]) -> bool:
        count = len(self.tokens)
        if len(words) < count or (len(words) > count and not self.rest):
            return False
        if count == 1:
            return True
        pairs = zip(self.tokens[1:], words[1:], strict=False)
        return all(word.literal and not word.glob and token.fits(word.text) for token, word in pairs)

    def _option_refusal(self, name: str, words: tuple[Word, ...]) -> str:
        if self.forbid_flags and any(has_flag(words[1:], flag) is not Fit.NO for flag in self.forbid_flags):
            return "forbids one of its options"
        if self.any_flag and not any(has_flag(words[1:], flag) is Fit.YES for flag in self.any_flag):
            return "requires an option that it lacks"
        if self.rest and not self.trust_arguments:
            for index, effect in self.known.unsafe_arguments(name, words):
                if index >= len(self.tokens) or index == 0:
                    if words[index].dynamic:
                        return (
                            f"does not cover `{words[index].text[:40]}…`: its value is only known when it runs, and may be "
                            "an option"
                        )
                    return f"does not cover `{words[index].text[:40]}`, which {EFFECT_PHRASES[effect]}"
        return ""

    def may_match(self, command: SimpleCommand) -> Fit:
        """Match a command of the ask-deny view, skipping any options between the words."""
        if not command.name or not (self.tokens[0].fits(command.name) or self.tokens[0].fits(command.words[0].text)):
            return Fit.NO
        arguments = command.words[1:]
        fit = self._match_arguments(command.name, arguments)
        if fit is not Fit.YES and (valued := self._valued_options()):
            apart = _with_values_apart(arguments, valued)
            fit = max(fit, self._match_arguments(command.name, apart)) if apart != arguments else fit
        if self.any_flag and fit:
            fit = min(fit, max(has_flag(arguments, flag) for flag in self.any_flag))
        if fit and any(has_flag(arguments, flag) is Fit.YES for flag in self.forbid_flags):
            return Fit.NO
        return fit

    def _valued_options(self) -> frozenset[str]:
        """Return the options of the pattern that a word follows, which may be their value: `-m` in `python -m pip`."""
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return frozenset(
            word for token, following in pairs if token.option and not following.option for word in token.words
        )

    def _match_arguments(self, name: str, arguments: tuple[Word, ...]) -> Fit:
        """Match the tokens after the command word, skipping options in between. Visits each state once."""
        values = _GLOBAL_VALUES.get(name)
        if values is not None:
            values -= self._valued_options()
        ends = len(arguments)
        best = Fit.NO
        pending = [(1, 0, Fit.YES)]
        visited: set[tuple[int, int, Fit]] = set()
        while pending and best is not Fit.YES:
            state = pending.pop()
            if state in visited:
                continue
            visited.add(state)
            token, at, fit = state
            if token == len(self.tokens):
                best = max(best, fit if self.rest or at == ends or self._only_options(arguments[at:]) else Fit.NO)
                continue
            wanted = self.tokens[token]
            if wanted.option:
                found = min(fit, max(has_flag(arguments[at:], flag) for flag in wanted.words))
                pending.extend([(token + 1, at, found)] if found else [])
            elif at < ends:
                pending.extend(_steps(state, wanted, arguments[at], values))
        return best

    def _only_options(self, arguments: tuple[Word, ...]) -> bool:
        """Return whether only options are left, which is a match if the pattern names options itself."""
        named = any(token.option for token in self.tokens)
        return named and all(word.text.startswith("-") for word in arguments)


def _with_values_apart(arguments: tuple[Word, ...], valued: frozenset[str]) -> tuple[Word, ...]:
    """Return the arguments with the values of these options as words of their own: `-mpip` and `-Impip` as `-m pip`."""
    apart: list[Word] = []
    for word in arguments:
        apart.append(word)
        for option in valued:
            if option.startswith("--"):
                known, mark, value = word.text.partition("=")
                found = bool(mark) and known == option
            else:
                before, mark, value = word.text.partition(option[1:])
                found = bool(mark and value) and before.startswith("-") and not before.startswith("--")
                known = before + mark
            if found:
                apart[-1:] = [Word(known), word._replace(text=value)]
                break
    return tuple(apart)


def _is_folder(words: Sequence[Word]) -> bool:
    """Return whether the words are `-C` and exactly one folder, known or unknown."""
    return len(words) == 2 and words[0].text == "-C" and not words[1].glob and (words[1].literal or words[1].single)  # noqa: PLR2004


def _steps(
    state: tuple[int, int, Fit], wanted: Token, word: Word, values: frozenset[str] | None
) -> Iterator[tuple[int, int, Fit]]:
    """Yield the next states: the argument is the wanted word, or an option to skip, with or without a value."""
    token, at, fit = state
    if not word.literal or word.glob:
        yield token + 1, at + 1, Fit.MAYBE
        yield token, at + 1, Fit.MAYBE
        return
    if wanted.fits(word.text):
        yield token + 1, at + 1, fit
    if word.text.startswith("-"):
        valued = "=" not in word.text and (values is None or word.text in values)
        if values is None or not valued:
            yield token, at + 1, fit
        if valued:
            yield token, at + 2, fit


def has_flag(arguments: Sequence[Word], flag: str) -> Fit:
    """Return whether an option is present in any spelling: `-rf`, `-fr`, `-f -r`, `--force`, `--forc`."""
    if not flag.startswith("--") and len(flag) > 2 and flag[1:].isalpha():  # noqa: PLR2004 (a dash and a letter)
        exact = any(word.text == flag or word.text.startswith(flag + "=") for word in arguments)
        return Fit.YES if exact else min(has_flag(arguments, "-" + letter) for letter in flag[1:])
    spellings = (flag, *_SYNONYMS.get(flag[1:], ())) if len(flag) == 2 else (flag,)  # noqa: PLR2004
    unknown = Fit.NO
    for word in arguments:
        if word.text == "--":
            break
        if not word.literal or word.may_be_option:
            unknown = Fit.MAYBE
        elif any(_spells(word.text, spelling) for spelling in spellings):
            return Fit.YES
    return unknown


def _spells(text: str, flag: str) -> bool:
    if flag.startswith("--"):
        name = text.partition("=")[0]
        return name == flag or (len(name) > 3 and name.startswith("--") and flag.startswith(name))  # noqa: PLR2004 (one letter is too little)
    if text == flag:
        return True
    return len(flag) == 2 and text.startswith("-") and not text.startswith("--") and flag[1] in text.partition("=")[0]  # noqa: PLR2004
