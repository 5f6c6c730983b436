"""Reads the commands that `find` runs, and the names that it prints for `xargs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.words import Word

_RUNS = frozenset(("-exec", "-execdir"))
_OTHER_OUTPUT = frozenset(
    [
        *("-exec", "-execdir", "-ok", "-okdir", "-delete", "-print", "-printf", "-ls"),
        *("-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from", "-version", "--version", "-help", "--help"),
    ]
)
_BEFORE_PATHS = frozenset(("-H", "-L", "-P"))
_NOT_FIRST = frozenset("-!(),;+{")
"""First characters of no command: where `-exec` is the value of another test, a test or an operator follows."""


def executed_commands(command: SimpleCommand) -> list[SimpleCommand]:
    """Return a `find` without its `-exec`, and each command that it runs; nothing if there is none or one is uncertain.

    `{}` becomes an unknown word that starts as the found names do: with the path where the search starts.
    """
    words = command.words
    if not any(word.text in _RUNS for word in words):
        return []
    place = _first_path(words)
    if place is None:
        return []
    own: list[Word] = []
    inner: list[list[Word]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not (word.literal and word.text in _RUNS):
            own.append(word)
            continue
        end = _end(words, at)
        if end is None:
            return []
        found = "./" if word.text == "-execdir" else place
        inner.append([_found_name(part, found) for part in words[at:end]])
        at = end + 1
    context = replace(command.context, whole=command)
    return [SimpleCommand(tuple(part), command.assignments, context) for part in (own, *inner)]


def names_for_xargs(words: Sequence[Word]) -> Word | None:
    """Return what each name starts with that `find … -print0` prints; None if it may print anything else."""
    texts = [word.text for word in words]
    if "-print0" not in texts or not _OTHER_OUTPUT.isdisjoint(texts):
        return None
    if any(word.broken or word.may_be_option for word in words):
        return None
    path = _first_path(words)
    return None if path is None else Word(path, dynamic=True, plain=True, single=True)


def _first_path(words: Sequence[Word]) -> str | None:
    """Return what found names start with; with several paths, what those of the first do. None if that is not certain."""
    if any(word.broken or word.may_be_option for word in words):
        return None
    paths: list[str] = []
    for word in words[1:]:
        if not paths and word.text in _BEFORE_PATHS:
            continue
        if not paths and (word.text == "--" or word.text[:2] in ("-O", "-D")):
            return None  # a path behind these may start with anything
        if word.text[:1] in ("-", "(", "!", ")", ","):
            break
        paths.append(word.text)
    if not all(path[:1].isalnum() or path[:1] in ("_", ".", "/") for path in paths):
        return None
    return paths[0] if paths else "."


def _end(words: Sequence[Word], start: int) -> int | None:
    """Return the index of the `;` or `+` that ends the command which starts at `start`; None if that is not certain."""
    if start >= len(words) or not words[start].literal or words[start].text[:1] in _NOT_FIRST or not words[start].text:
        return None
    for at in range(start, len(words)):
        word = words[at]
        unknown = word.dynamic or word.glob
        if word.broken or (unknown and not (word.text[:1].isalnum() or word.text[:1] in ("_", ".", "/"))):
            return None  # it may become `;`, `+` or `{}`
        if not unknown and (word.text == ";" or (word.text == "+" and words[at - 1].text == "{}")):
            return at
    return None


def _found_name(word: Word, place: str) -> Word:
    """Return an argument of the command as it may be when `find` has put a name in the place of each `{}`."""
    before, mark, _ = word.text.partition("{}")
    if not mark:
        return word
    return Word(before or place, dynamic=True, plain=True, single=True, scripts=word.scripts)
