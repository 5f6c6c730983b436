"""Which command of a line made policy ask, and which of its words: for the people who approve it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from codesdk.domain.decisions import CommandCause
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.known_commands import known_commands
from codesdk.policy.shell.patterns import Fit, Pattern, has_flag
from codesdk.policy.shell.words import Word


def matched_by(pattern: Pattern, command: SimpleCommand) -> CommandCause:
    """The words because of which a rule's pattern matches: its fixed words, its options, and unknown arguments."""
    return _cause(command, dict.fromkeys(_matched(pattern, command.words)))


def not_allowed(command: SimpleCommand, *, has_rule: bool) -> CommandCause:
    """The words because of which no rule allows a command. `has_rule`: one allows it with other arguments."""
    found = known_commands().unsafe_arguments(command.name, command.words) if has_rule else ()
    unsafe = dict.fromkeys(each.at for each in found)
    return _cause(command, unsafe or range(len(command.words) if has_rule else 1))


def unreadable(shell: ShellViews) -> CommandCause | None:
    """The first command whose name or script is only known when it runs; None if that isn't why it can't be read."""
    for command in shell.seen:
        unknown = [index for index, word in enumerate(command.words) if not word.literal]
        if not command.name and unknown[:1] == [0]:
            return _cause(command, (0,))
    return None


def _matched(pattern: Pattern, words: tuple[Word, ...]) -> Iterator[int]:
    yield 0
    at = 1
    for token in pattern.tokens[1:]:
        if token.option:
            yield from _spelled(words, tuple(token.words))
            continue
        place = next(
            (index for index in range(at, len(words)) if token.fits(words[index].text) or not words[index].literal), 0
        )
        if place:
            yield place
            at = place + 1
    yield from _spelled(words, pattern.any_flag)


def _spelled(words: tuple[Word, ...], flags: tuple[str, ...]) -> Iterator[int]:
    """Where one of these options is, or may be."""
    for index, word in enumerate(words[1:], 1):
        if word.text == "--" and word.literal:
            return
        if any(has_flag((word,), letter) is not Fit.NO for flag in flags for letter in _letters(flag)):
            yield index


def _letters(flag: str) -> tuple[str, ...]:
    """`-rf` may be spelled `-r -f`."""
    cluster = not flag.startswith("--") and len(flag) > 2 and flag[1:].isalpha()  # noqa: PLR2004 (a dash and a letter)
    return (flag, *(f"-{letter}" for letter in flag[1:])) if cluster else (flag,)


def _cause(command: SimpleCommand, indexes: dict[int, None] | tuple[int, ...] | list[int] | range) -> CommandCause:
    return CommandCause(command=tuple(word.text for word in command.words), words=tuple(sorted(indexes)))
