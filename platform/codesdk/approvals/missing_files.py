"""Which of the words that an approval binds as files are worth telling a person: pure, for terminal and page alike.

Every word of a command that may be a path is bound, also where there is no such file: one that appears there meanwhile
would change what runs. But `+x`, `install` or `main` are no files to anybody, and a list of them hides those that are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LOOKS_LIKE_A_FILE = re.compile(r"[^+=-].*/.*|/.*|[A-Za-z0-9_][^=\s]*\.[A-Za-z][A-Za-z0-9]{0,9}", re.DOTALL)


class MissingFiles(NamedTuple):
    """What is not there, and must not be when it runs."""

    files: tuple[str, ...]
    words: int
    """How many more words of the command are bound that look like no file."""

    @property
    def counted(self) -> str:
        """The words, in a sentence; empty where there are none."""
        if not self.words:
            return ""
        some = "1 other word of it names" if self.words == 1 else f"{self.words} other words of it name"
        return f"{some} no file, and must name none when it runs."


def missing_files(shown: Mapping[str, Any]) -> MissingFiles:
    """Of what an approval shows. Each path is told once, from however many directories it was looked for."""
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
