"""Transparent wrappers, which allow rules look through: `timeout 5 ls` is allowed if `ls` is.

Used only for the allow view, and only if every word before the inner command is known exactly. With an unlisted option, a
value of another form, a glob or a variable there, the wrapper is treated like any other command. The ask-deny view has
its own wrappers (`wrappers.py`) and never sees less.

Excluded: `nohup` (may write `nohup.out`), `env` with variables or options, and anything that changes the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.words import Word

_MAX_DEPTH = 8
"""Levels of wrappers around wrappers."""
_INPUTS = Word("", dynamic=True, plain=True)
"""The arguments that `xargs` adds: any number of unknown words."""

_DELIMITER = ("-d", "--d")

_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?[smhd]?")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9+-]{1,10}|[0-9]{1,2}")
_NICENESS = re.compile(r"[+-]?[0-9]{1,2}")
_BUFFERING = re.compile(r"L|[0-9]{1,9}[KMG]?")
_ANY = re.compile(r".+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Transparent:
    """The exact syntax of a wrapper's own words."""

    bare: frozenset[str] = frozenset()
    """Options without a value."""
    valued: Mapping[str, re.Pattern[str]] | None = None
    """Options with a value, and its form: the next word, after `=` of a long option, or attached to a short one."""
    is_one_word: re.Pattern[str] | None = None
    """Options that contain their value: `nice -5`."""
    operand: re.Pattern[str] | None = None
    """The single operand between the options and the command."""
    fits: Callable[[str], bool] = lambda _: True
    """Whether the wrapper accepts the word as a command."""


_TABLE: dict[str, _Transparent] = {
    "timeout": _Transparent(
        frozenset(("--foreground", "--preserve-status", "-v", "--verbose")),
        {"-s": _SIGNAL, "--signal": _SIGNAL, "-k": _DURATION, "--kill-after": _DURATION},
        operand=_DURATION,
    ),
    "nice": _Transparent(valued={"-n": _NICENESS, "--adjustment": _NICENESS}, is_one_word=re.compile(r"-[0-9]{1,2}")),
    "stdbuf": _Transparent(
        valued=dict.fromkeys(("-i", "-o", "-e", "--input", "--output", "--error"), _BUFFERING),
    ),
    # `env` reads any `NAME=value` as a variable, and so does bash for its own `time`.
    "env": _Transparent(fits=lambda text: "=" not in text),
    "time": _Transparent(frozenset(("-p",)), fits=lambda text: "=" not in text),
    "command": _Transparent(),
    "xargs": _Transparent(
        frozenset(("-0", "--null", "-r", "--no-run-if-empty", "-t", "--verbose", "-x", "--exit")),
        {
            **dict.fromkeys(("-n", "--max-args", "-P", "--max-procs", "-L", "-s", "--max-chars"), _NUMBER),
            **dict.fromkeys(("-d", "--delimiter", "-I"), _ANY),
        },
    ),
}  # fmt: skip


def wrapped_commands(command: SimpleCommand) -> Iterator[SimpleCommand]:
    """Yield the commands that a transparent wrapper runs, outermost first; none if it isn't one."""
    for _ in range(_MAX_DEPTH):
        inner = _inner(command)
        if inner is None:
            return
        yield inner
        command = inner


def _inner(command: SimpleCommand) -> SimpleCommand | None:
    words = command.words
    # By plain name only: `./timeout` may be any program.
    wrapper = _TABLE.get(words[0].text) if words and _is_literal(words[0]) else None
    if wrapper is None:
        return None
    start, replaced = _start(wrapper, words)
    if start is None or not wrapper.fits(words[start].text):
        return None
    rest = words[start:]
    if words[0].text == "xargs":
        filled = _with_inputs(rest, replaced, _inputs(command, start))
        if filled is None:
            return None
        rest = filled
    return SimpleCommand(rest, command.assignments, command.context)


def _inputs(command: SimpleCommand, start: int) -> Word:
    """Return what the inputs of `xargs` are. Without `-0`, it splits a name that holds spaces or line ends."""
    options = [word.text for word in command.words[1:start]]
    separate = any(text in ("-0", "--null") for text in options) and not any(
        text.startswith(_DELIMITER) for text in options
    )
    return (command.context.inputs if separate else None) or _INPUTS


def _is_literal(word: Word) -> bool:
    return word.literal and not word.glob


def _start(wrapper: _Transparent, words: Sequence[Word]) -> tuple[int | None, list[str]]:
    """Return where the inner command starts (None if uncertain), and xargs' replacement strings."""
    at = 1
    replaced: list[str] = []
    counted = False
    while at < len(words) and _is_literal(words[at]) and words[at].text.startswith("-") and len(words[at].text) > 1:
        text = words[at].text
        at += 1
        if text == "--":
            break
        if text in wrapper.bare or (wrapper.is_one_word is not None and wrapper.is_one_word.fullmatch(text)):
            continue
        option, value = _split(text)
        if value is None and at < len(words) and _is_literal(words[at]):
            value = words[at].text
            at += 1
        form = (wrapper.valued or {}).get(option)
        if form is None or value is None or not form.fullmatch(value):
            return None, []
        if option == "-I":
            replaced.append(value)
        counted = counted or option in ("-n", "--max-args", "-L")
    if wrapper.operand is not None:
        if at >= len(words) or not _is_literal(words[at]) or not wrapper.operand.fullmatch(words[at].text):
            return None, []
        at += 1
    if at >= len(words) or not _is_literal(words[at]) or words[at].text.startswith("-") or not words[at].text:
        return None, []
    # With `-n` or `-L` as well, the last option wins, so the replacement string is treated as one of several.
    return at, replaced * 2 if counted else replaced


def _split(text: str) -> tuple[str, str | None]:
    """Return an option, and its value if it is in the same word."""
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        return name, value if equals else None
    return text[:2], text[2:] or None


def _with_inputs(words: tuple[Word, ...], replaced: Sequence[str], inputs: Word) -> tuple[Word, ...] | None:
    """Return xargs' command with its unknown arguments; None if the command's name is unknown.

    Appends unknown arguments even with a replacement string, because a later `-n` or `-L` cancels `-I`. Checks every word
    for the string, because the last `-I` counts and a glob may expand to a word that contains it.
    """
    name, *arguments = words
    if any(mark in name.text for mark in replaced):
        return None
    filled = [_filled(word, replaced, inputs) for word in arguments]
    return (name, *filled) if len(replaced) == 1 else (name, *filled, _INPUTS if replaced else inputs)


def _filled(word: Word, replaced: Sequence[str], inputs: Word) -> Word:
    """Return a word with its replacement strings replaced. What precedes the only one stays as it is."""
    if len(replaced) == 1 and word.literal and not word.glob:
        before, mark, _ = word.text.partition(replaced[0])
        if not mark:
            return word
        return Word(before, dynamic=True, plain=True, single=True) if before else inputs
    unknown = any(mark in word.text for mark in replaced) or (replaced and (word.glob or word.dynamic))
    return _INPUTS if unknown else word
