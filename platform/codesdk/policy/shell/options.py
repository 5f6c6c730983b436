"""Options by their spelling: long, abbreviated, in clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.words import Word

WordIndexes = Iterator[int]
"""Indexes of the dangerous words."""


@dataclass(frozen=True, slots=True)
class Options:
    """A command's dangerous options."""

    long: tuple[str, ...] = ()
    short: str = ""
    values: str = ""
    """Short options that take the rest of their cluster as value: in `-k2o` there is no `-o`."""
    abbreviated: bool = True
    """GNU getopt takes any beginning of a long option."""
    single_dash: bool = False
    """Long options with one dash, as in Go's tools."""
    harmless: tuple[str, ...] = ()
    """Long options that begin like a dangerous one and are complete themselves."""


def dangerous_options(options: Options, words: Sequence[Word]) -> WordIndexes:
    """Indexes of the options among `words`, the command word first, that are dangerous or may become so."""
    before = ""
    for index, word in enumerate(words[1:], 1):
        text = word.text
        if text == "--" and not before.startswith("-"):
            return  # an option before might take the `--` as its value, and then options go on
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
