"""Finds dangerous options in every spelling: long, abbreviated, in clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.words import Word

WordIndexes = Iterator[int]
"""Indexes of dangerous words."""


@dataclass(frozen=True, slots=True)
class Options:
    """The dangerous options of a command, and how the command parses options."""

    long: tuple[str, ...] = ()
    short: str = ""
    values: str = ""
    """Short options that take the rest of their cluster as the value: `-k2o` contains no `-o`."""
    abbreviated: bool = True
    """Whether long options can be abbreviated, as GNU getopt allows."""
    single_dash: bool = False
    """Whether long options have one dash, as in Go's tools."""
    harmless: tuple[str, ...] = ()
    """Long options that are a prefix of a dangerous one but complete in themselves."""


def dangerous_options(options: Options, words: Sequence[Word]) -> WordIndexes:
    """Yield the indexes of options in `words` (the command word first) that are dangerous or may expand to one."""
    before = ""
    for index, word in enumerate(words[1:], 1):
        text = word.text
        if text == "--" and not before.startswith("-"):
            return  # otherwise `--` might be the value of the option before it
        before = text
        if word.may_be_option:
            yield index
        elif text.startswith("--") or (options.single_dash and text.startswith("-")):
            if _is_long(options, text.partition("=")[0]):
                yield index
        elif text.startswith("-") and _in_cluster(options, text):
            yield index


def _is_long(options: Options, name: str) -> bool:
    if name in options.harmless:
        return False
    beginning = options.abbreviated and name != "--"
    return name in options.long or (beginning and any(long.startswith(name) for long in options.long))


def _in_cluster(options: Options, text: str) -> bool:
    for letter in text[1:]:
        if letter in options.short:
            return True
        if letter in options.values:
            return False
    return False
