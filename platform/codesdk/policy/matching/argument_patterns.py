"""Decides whether an argument of an allowed command is certainly one of those that a rule lists (`arguments`)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from codesdk.policy.matching.argument_conditions import WORKSPACE, glob_matcher
from codesdk.policy.shell.words import Word

_MAX_WORD = 4096
_WILDCARDS = frozenset("*?[")


def argument_matcher(patterns: Sequence[str]) -> Callable[[Word], bool]:
    """Return a function that tells whether an argument matches one of the patterns.

    An option is compared as it is written. Any other argument is compared as a path, relative to the workspace and with `..`
    resolved; one with wildcards matches if everything does that it can become.
    """
    options = glob_matcher([pattern for pattern in patterns if pattern.startswith("-")])
    paths = [pattern for pattern in patterns if not pattern.startswith("-")]
    fits = _path_matcher(paths)
    # `?` and `[…]` of a pattern would match a wildcard of the word, but not all that it can become.
    covers = _path_matcher([pattern for pattern in paths if not set(pattern) & set("?[")])

    def matches(word: Word) -> bool:
        text = word.text
        if not word.literal or len(text) > _MAX_WORD or "\0" in text:
            return False
        if text.startswith("-"):
            return not word.glob and options(text)
        if not word.glob:
            return not text.startswith("~") and fits(text)
        # A leading wildcard may become an option, and `.*` may become `..`.
        names = text.split("/")
        may_leave = any(name.startswith(".") and not _WILDCARDS.isdisjoint(name) for name in names)
        return text[:1] not in _WILDCARDS | {"~"} and not may_leave and covers(text)

    return matches


def _path_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    compiled = [_compile(pattern) for pattern in patterns]

    def matches(text: str) -> bool:
        names = _names(posixpath.normpath(posixpath.join(WORKSPACE, text)))
        return any(_fits(pattern, names) for pattern in compiled)

    return matches


def _compile(pattern: str) -> list[re.Pattern[str] | None]:
    """Return a test for each name of the pattern; None for `**`."""
    names = _names(posixpath.join(WORKSPACE, pattern))
    return [None if name == "**" else re.compile(translate(name)) for name in names]


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _fits(pattern: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    ends = {0}
    for name in pattern:
        if not ends:
            return False
        if name is None:
            ends = set(range(min(ends), len(names) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(names) and name.match(names[at])}
    return len(names) in ends
