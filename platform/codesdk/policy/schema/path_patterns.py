"""The syntax of path patterns, as in `paths` and `arguments`.

`*` and `?` match within a name, `**` any number of directories, `[…]` one character. A pattern without a leading `/` may
start at any directory.
"""

from __future__ import annotations

import re

_SET = re.compile(r"\[!?\]?[^\]/]*\]")


def path_pattern(text: str) -> str:
    """Return the pattern unchanged if its syntax is valid.

    Raises:
        ValueError: it can't match a path, or matches every path.
    """
    names = text.removesuffix("/").split("/")
    if not text.strip("*/"):
        raise ValueError(f"`{text}` matches every path; leave it out.")
    if text.startswith("~"):
        raise ValueError(f"`{text}`: a pattern knows no home directory; without `~/` it matches in every directory.")
    if any(name in (".", "..") for name in names):
        raise ValueError(f"`{text}`: `.` and `..` are resolved before a path is compared; leave them out.")
    if "" in names[1:]:
        raise ValueError(f"`{text}`: a name is missing between two `/`.")
    if "\\" in text or "\0" in text:
        raise ValueError(f"`{text}`: write `[*]`, `[?]` or `[[]` for the character itself; there is no backslash.")
    if "[" in _SET.sub("", text):
        raise ValueError(f"`{text}`: a `[` has no `]`; write `[[]` for the character itself.")
    if any("**" in name and name != "**" for name in names):
        raise ValueError(f"`{text}`: `**` stands alone between two `/`.")
    return text


def argument_pattern(text: str) -> str:
    """Return the pattern of an argument unchanged: an option, or a path in which `**` is everything in the workspace.

    Raises:
        ValueError: it can't match a path.
    """
    return text if text.startswith("-") or text in ("*", "**") else path_pattern(text)
