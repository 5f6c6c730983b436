"""Builds the allow and ask-deny views of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from codesdk.policy.shell.allow_view import AllowView, argument_list
from codesdk.policy.shell.commands import MAX_COMMANDS, MAX_GUESSES, MAX_NESTING, MAX_WORDS, ShellViews, SimpleCommand
from codesdk.policy.shell.nested_command_wrappers import ASSIGNED_SCRIPT
from codesdk.policy.shell.nested_commands import RUNS_OTHERS, NestedCommand, nested_commands
from codesdk.policy.shell.parser import Script, collect_commands
from codesdk.policy.shell.words import Word

# Control characters except tab and newline, invisible and bidirectional characters, spaces other than U+0020.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\ufffb\ue000-\uf8ff\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_SEGMENT_END = re.compile(r"[;&|(){}<>`\n]+")
_QUOTES = re.compile(r"['\"\\]")
_GLOB_MARKS = frozenset("*?[")
_GUESSED_WORDS = 64
"""Words of a guessed command: enough for every pattern, and little enough for MAX_GUESSES commands."""


def analyze_line(line: str, stdin: str | None = None) -> ShellViews:
    """Return both views of a shell line; `stdin` is the tool call's standard input, if any."""
    survey = _AskDenyView(stdin)
    hidden = None if line.isascii() and line.isprintable() else _HIDDEN.search(line)
    if hidden:
        survey.mark_opaque(f"it holds the invisible character U+{ord(hidden[0]):04X}")
        for text in _without_hidden(line):
            survey.script(Script(text), 0, guess=True)
    script = Script(line)
    survey.script(script, 0)
    if hidden or script.is_unreliable or survey.over_limit:
        survey.guess(line)
    if survey.opaque:
        return survey.views(None, survey.opaque)
    view = AllowView(survey.found)
    return survey.views(*view.build(script), moves_in_loop=view.moves_in_loop)


def analyze_argv(argv: Sequence[str], stdin: str | None = None) -> ShellViews:
    """Return both views of an argument list, which runs without a shell, so nothing in it expands."""
    survey = _AskDenyView(stdin)
    if not argv:
        survey.mark_opaque("it is empty")
        return survey.views(None, survey.opaque)
    command = SimpleCommand(tuple(Word(text) for text in argv))
    if "\0" in "".join(argv) or _HIDDEN.search(argv[0]):
        survey.mark_opaque("it holds a hidden character")
        survey.command(SimpleCommand(tuple(Word(_HIDDEN.sub("", text)) for text in argv)), 0, guess=True)
        survey.guess(" ".join(argv))
    survey.command(command, 0)
    return survey.views(argument_list(command) if not survey.opaque else None, survey.opaque)


def analyze_unclear(values: Iterable[Any], stdin: str | None) -> ShellViews:
    """Return the views of a call whose command is neither one line nor one list of words: what its values may run."""
    survey = _AskDenyView(stdin)
    survey.mark_opaque("its command is neither one line nor one list of words")
    for value in values:
        texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
        if texts:
            survey.command(SimpleCommand(tuple(Word(text) for text in texts)), 0, guess=True)
        elif isinstance(value, str):
            survey.script(Script(value), 0, guess=True)
            survey.guess(value)
    return survey.views(None, survey.opaque)


def _without_hidden(text: str) -> set[str]:
    """Return what the text may mean to a reader: its hidden characters left out, or as spaces."""
    return {_HIDDEN.sub("", text), _HIDDEN.sub(" ", text)}


class _AskDenyView:
    """Collects every command that might run, including those in scripts inside arguments."""

    def __init__(self, stdin: str | None) -> None:
        self.opaque = ""
        self.found: list[SimpleCommand] = []
        self._guessed: list[SimpleCommand] = []
        self._redirections: list[Word] = []
        self._values: list[tuple[str, Word]] = []
        self._inputs: list[str] = [stdin] if stdin else []
        self.over_limit = False
        self._words = 0
        self._stdin = stdin

    def views(
        self, allow_view: tuple[SimpleCommand, ...] | None, refusal: str, *, moves_in_loop: bool = False
    ) -> ShellViews:
        """Return both views; the ask-deny view holds what was collected."""
        return ShellViews(
            allow_view,
            refusal,
            tuple(self.found),
            self.opaque,
            tuple(self._guessed),
            over_limit=self.over_limit,
            moves_in_loop=moves_in_loop,
            redirections=tuple(self._redirections),
            values=tuple(self._values),
            inputs=tuple(self._inputs),
        )

    def script(self, script: Script, depth: int, *, guess: bool = False) -> None:
        """Collect every command of a parsed script. If the script is a guess, errors in it are ignored."""
        if script.too_much:
            if not guess:
                self._exceed("it is too long or too tangled to parse")
            return
        for command in script.plain:
            self.command(command, depth, script, guess=guess)
        if script.plain:
            return
        if script.has_error:
            self._mark_opaque("it is not a shell command that can be parsed", guess)
        collect_commands(script)
        self._redirections += script.redirections
        self._values += script.values
        self._inputs += [document.text for document in script.here_documents]
        if script.broken:
            self._mark_opaque(script.broken, guess)
        for command in script.commands.values():
            self.command(command, depth, script, guess=guess)
        for text in script.embedded:
            self._script(Word(text), depth, guess=guess)

    def command(self, command: SimpleCommand, depth: int, script: Script | None = None, *, guess: bool = False) -> None:
        """Collect a simple command and its nested commands."""
        if not self._is_within_limits(command):
            return
        for name, value in command.assignments:
            if value.literal and ("$(" in value.text or "`" in value.text or ASSIGNED_SCRIPT.fullmatch(name)):
                self._script(value, depth, guess=True)
        self._values += command.assignments
        if not command.words:
            return
        self.found.append(command)
        if not command.name:
            self._mark_opaque("the name of a command in it is not known before it runs", guess)
            return
        for inner in nested_commands(command.name, command.words) if command.name in RUNS_OTHERS else ():
            if inner.stdin:
                self._standard_input(script, depth, guess=guess)
            elif inner.script is not None:
                self._script(inner.script, depth, guess=inner.guess or guess)
            elif inner.words:
                self._nested(inner, depth, script, guess=guess)

    def _is_within_limits(self, command: SimpleCommand) -> bool:
        self._words += len(command.words)
        if len(self.found) >= MAX_COMMANDS:
            self._exceed(f"it runs more than {MAX_COMMANDS} commands")
        elif self._words > MAX_WORDS:
            self._exceed(f"its commands have more than {MAX_WORDS} words")
        else:
            return True
        return False

    def _nested(self, inner: NestedCommand, depth: int, script: Script | None, *, guess: bool) -> None:
        if depth >= MAX_NESTING:
            self._exceed("commands are nested too deep in it")
        else:
            self.command(SimpleCommand(inner.words), depth + 1, script, guess=guess)

    def _script(self, text: Word, depth: int, *, guess: bool) -> None:
        if depth >= MAX_NESTING:
            self._exceed("scripts are nested too deep in it")
        elif not text.literal:
            self._mark_opaque("a script in it is not known before it runs", guess)
            if text.text.strip():  # the known part may be enough to deny
                self.script(Script(text.text), depth + 1, guess=True)
        elif text.text.strip():
            if _HIDDEN.search(text.text):
                self._mark_opaque("a script in it holds an invisible character", guess)
                for variant in _without_hidden(text.text):
                    self.script(Script(variant), depth + 1, guess=True)
            script = Script(text.text)
            self.script(script, depth + 1, guess=guess)
            if script.is_unreliable and not guess:
                self.guess(text.text)

    def _standard_input(self, script: Script | None, depth: int, *, guess: bool) -> None:
        texts = list(script.here_documents) if script else []
        if self._stdin is not None:
            texts.append(Word(self._stdin))
        self._mark_opaque("a shell in it reads its script from standard input", guess)
        for text in texts:
            self._script(text, depth, guess=True)

    def guess(self, text: str) -> None:
        """Take every word of a text that can't be parsed reliably as the name of a command with the words behind it."""
        for segment in _SEGMENT_END.split(_HIDDEN.sub(" ", text)):
            words = tuple(map(_guessed_word, segment.split()))
            if len(self._guessed) + len(words) > MAX_GUESSES:
                self._exceed("it is too long to be read word by word")
                return
            self._guessed += [SimpleCommand(words[at : at + _GUESSED_WORDS]) for at in range(len(words))]

    def mark_opaque(self, why: str) -> None:
        """Note why the collected commands may not be all; the first reason stays."""
        self.opaque = self.opaque or why

    def _mark_opaque(self, why: str, guess: bool) -> None:
        if not guess:
            self.mark_opaque(why)

    def _exceed(self, why: str) -> None:
        self.mark_opaque(why)
        self.over_limit = True


def _guessed_word(text: str) -> Word:
    """Return a word without its quotes; what follows a `$` is unknown."""
    known, dollar, _ = _QUOTES.sub("", text).partition("$")
    return Word(known, dynamic=bool(dollar), glob=not _GLOB_MARKS.isdisjoint(known))
