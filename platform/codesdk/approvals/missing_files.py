"""Selects the missing files to show with an approval, for the terminal and the approval page.

An approval binds every word of a command that may be a path, even if no such file exists: one created later would change
what runs. Words such as `+x`, `main`, `s/a/b/` or `origin/main` don't look like files, so they are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

_HAS_EXTENSION = re.compile(
    r"[\w./~+-]*\w\.(?:sh|bash|zsh|py|pyi|js|mjs|cjs|ts|tsx|jsx|rb|pl|php|lua|go|rs|java|kt|c|h|cc|cpp|hpp|cs|swift|sql|r|ipynb"
    r"|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|xml|html?|css|scss|md|rst|txt|csv|tsv|log|diff|patch|properties|tf|proto"
    r"|gz|tgz|tar|zip|xz|bz2|zst|whl|jar|so|bin|exe|dat|db|sqlite|pem|key|crt|png|jpe?g|gif|svg|pdf|bak|orig|tmp|out)"
)
_IS_PATH = re.compile(r"[\w./~+-][\w./~+ -]*/[\w./~+ -]*")
_IS_SUBSTITUTION = re.compile(r"[sy]([/|,#]).*\1.*\1\w*")
"""A script of sed: `s/old/new/`."""
_NAMES_OTHER_THINGS = frozenset(
    ["git", "gh", "docker", "podman", "kubectl", "helm", "npm", "pnpm", "yarn", "pip", "go", "echo", "printf"]
)
"""Commands whose words with a slash are branches, images, packages or text as often as files."""


class MissingFiles(NamedTuple):
    """Paths that don't exist, and must not exist when the call runs."""

    files: tuple[str, ...]
    words: int
    """Number of further bound words that don't look like files."""

    @property
    def counted(self) -> str:
        """A sentence about `words`; empty if there are none."""
        if not self.words:
            return ""
        some = "1 other word of it names" if self.words == 1 else f"{self.words} other words of it name"
        return f"{some} no file, and must name none when it runs."


def missing_files(shown: Mapping[str, Any]) -> MissingFiles:
    """The missing files of an approval. A path is listed once, however many directories it was looked up in."""
    bound = shown.get("bound")
    marks = bound.get("files") if isinstance(bound, Mapping) else None
    if not isinstance(marks, Sequence):
        return MissingFiles((), 0)
    gone = [each for each in marks if isinstance(each, Mapping) and each.get("kind") == "absent"]
    paths = tuple(dict.fromkeys(str(each.get("path")) for each in gone))
    if "commands" not in shown:  # a file tool: each is a path
        return MissingFiles(paths, 0)
    others = _words_of_other_things(shown["commands"])
    files = tuple(path for path in paths if _looks_like_a_file(path, others))
    return MissingFiles(files, len(paths) - len(files))


def _looks_like_a_file(path: str, others: Collection[str]) -> bool:
    if _HAS_EXTENSION.fullmatch(path):
        return True
    if not _IS_PATH.fullmatch(path) or _IS_SUBSTITUTION.fullmatch(path):
        return False
    return path.startswith(("/", "./", "../", "~/")) or path not in others


def _words_of_other_things(commands: Any) -> frozenset[str]:
    """Words that only commands of `_NAMES_OTHER_THINGS` have as arguments."""
    known = isinstance(commands, Sequence) and not isinstance(commands, str)
    told: dict[bool, set[str]] = {True: set(), False: set()}
    for words in commands if known else ():
        if isinstance(words, Sequence) and not isinstance(words, str) and words:
            name = str(words[0]).rpartition("/")[2]
            told[name in _NAMES_OTHER_THINGS].update(map(str, words[1:]))
    return frozenset(told[True] - told[False])
