"""Finds options in every spelling: long, abbreviated, in clusters, with an attached value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from codesdk.policy.schema.command_options import ArgumentEffect
from codesdk.policy.shell.words import Word

WordIndexes = Iterator[int]
"""Indexes of unsafe words."""


class Takes(Enum):
    """Whether the word after an option is the option's value."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a command that are known, and how the command reads options.

    Long options are folded: `--outDir`, `--out-dir` and `--out_dir` are the same, because several parsers accept each.
    """

    long: Mapping[str, ArgumentEffect]
    short: Mapping[str, ArgumentEffect]
    """By letter."""
    complete: frozenset[str]
    """Folded long options that are no abbreviation of a longer one."""
    harmless_values: Mapping[str, tuple[re.Pattern[str], ...]]
    """For unsafe options by folded name: the values with which they are harmless."""
    long_values: frozenset[str]
    short_values: frozenset[str]
    """Letters that take the rest of their cluster as the value: `-k2o` contains no `-o`."""
    flags: frozenset[str]
    """Folded options without a value."""
    abbreviated: bool
    single_dash: bool
    clusters: bool

    def effect(self, text: str) -> ArgumentEffect | None:
        """Return what an option does that may be unsafe; None if it is not known to do anything."""
        if text.startswith("--") or self.single_dash:
            found = self._long_effect(fold(text.partition("=")[0]))
            if found is not None or not self.clusters or text.startswith("--"):
                return found
        for letter in text[1:]:
            if letter in self.short:
                return self.short[letter]
            if letter in self.short_values:
                return None
        return None

    def _long_effect(self, name: str) -> ArgumentEffect | None:
        found = self.long.get(name)
        if found is not None or not name or name in self.complete:
            return found
        if self.abbreviated:
            for known in self.long:
                if known.startswith(name):
                    return self.long[known]
        # `--transform.js=…` sets a key of `--transform`.
        return self.long.get(name.partition(".")[0]) if "." in name else None

    def is_harmless(self, text: str, following: Word | None) -> bool:
        """Return whether an unsafe option has a value with which it is harmless.

        Args:
            text: the word with the option, and perhaps its value.
            following: the word after it, which may be its value.
        """
        if not self.harmless_values:
            return False
        name, equals, value = text.partition("=")
        name = fold(name)
        if name not in self.harmless_values and not text.startswith("--") and self.clusters:
            place = next((at for at, letter in enumerate(text[1:], 1) if letter in self.short), 0)
            name, value = text[place], text[place + 1 :]
            equals = value
        found = Word(value) if equals else following
        patterns = self.harmless_values.get(name, ())
        return (
            found is not None
            and found.literal
            and not found.glob
            and any(one.fullmatch(found.text) for one in patterns)
        )

    def takes_value(self, text: str) -> Takes:
        """Return whether an option takes the next word as its value; not if `text` is empty."""
        if not text or "=" in text:
            return Takes.NO
        if text.startswith("--") or (self.single_dash and (len(text) > 2 or not self.clusters)):  # noqa: PLR2004 (a dash and a letter)
            name = fold(text)
            known = Takes.NO if name in self.flags else Takes.UNKNOWN
            return Takes.YES if name in self.long_values else known
        for at, letter in enumerate(text[1:], 2):
            if letter in self.short_values:
                return Takes.YES if at == len(text) else Takes.NO
            if letter not in self.flags:
                return Takes.UNKNOWN
        return Takes.NO

    def value_of(self, text: str, wanted: frozenset[str]) -> str | None:
        """Return the value attached to one of the wanted options; empty if it is the next word, None if `text` is another."""
        if text.startswith("--"):
            name, _, value = text.partition("=")
            return value if name in wanted else None
        for at, letter in enumerate(text[1:], 2):
            if "-" + letter in wanted:
                return text[at:]
            if letter in self.short_values:
                return None
        return None


@lru_cache(maxsize=1024)
def fold(option: str) -> str:
    """Return a long option's name without case, dashes and underscores; a single letter as it is."""
    name = option.lstrip("-")
    return name if len(name) == 1 else name.lower().replace("-", "").replace("_", "")
