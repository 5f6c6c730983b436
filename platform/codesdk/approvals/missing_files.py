"""Selects the missing files to show with an approval, for the terminal and the approval page.

An approval binds every word of a command that may be a path, even if no such file exists: one created later would change
what runs. Words such as `+x`, `install` or `main` don't look like files, so they are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LOOKS_LIKE_A_FILE = re.compile(r"[^+=-].*/.*|/.*|[A-Za-z0-9_][^=\s]*\.[A-Za-z][A-Za-z0-9]{0,9}", re.DOTALL)


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
    files = tuple(path for path in paths if _LOOKS_LIKE_A_FILE.fullmatch(path))
    return MissingFiles(files, len(paths) - len(files))
