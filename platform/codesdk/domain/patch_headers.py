"""The lines of a patch that name files, in every format that `patch.apply` accepts. Pure.

Policy and the parser both read them here, so that no patch changes a file that policy has not seen named.
"""

from __future__ import annotations

import re

BOM = "\ufeff"
MAX_NAME = 4 * 4096 + 2
"""Characters of a name: PATH_MAX, each byte escaped, in quotes."""
DIFF_GIT = "diff --git "
SECTION = re.compile(r"\*\*\* (Add File|Update File|Delete File|Move to):[ \t]*(\S.*)")
"""A header of the apply-patch format: what it does, and the path."""
_TIMESTAMP = re.compile(r"[ \t]+[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}[0-9:.]*( *[+-][0-9]{4}|Z)?\s*\Z")
"""`diff -u` writes it after a tab; it is often copied with spaces."""
_TIMESTAMP_LENGTH = 60
"""Characters at the end of a line that are searched for it: the search takes quadratic time."""


_ESCAPE = re.compile(rb"\\([abtnvfr\"\\]|[0-7]{3})|\\")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


def is_name_pair(first: str, second: str) -> bool:
    """Return whether two lines are the `---` and `+++` of a unified diff."""
    return first.startswith("--- ") and second.startswith("+++ ")


def name_of(line: str) -> str:
    """Return the name in a `---` or `+++` line, still quoted if git has quoted it."""
    name, tab, _ = line[4:].partition("\t")
    if tab:
        return name.strip()
    return (name[:-_TIMESTAMP_LENGTH] + _TIMESTAMP.sub("", name[-_TIMESTAMP_LENGTH:])).strip()


def section(line: str) -> tuple[str, str] | None:
    """Return what a header of the apply-patch format does, and its path; None for other lines."""
    found = SECTION.match(line.rstrip()) if line.startswith("*** ") else None
    return (found[1], found[2].strip()) if found else None


def unquote_path(name: str) -> str:
    """Return the name without git's quotes and escapes.

    Raises:
        ValueError: an escape that git does not write, bytes that are no UTF-8, or more of them than a path can have.
    """
    if len(name) > MAX_NAME:
        raise ValueError(f"{name[:100]}… is too long for a path.")
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):  # noqa: PLR2004 (two quotes)
        return name

    def byte(found: re.Match[bytes]) -> bytes:
        letter = found[1]
        if letter is None or (letter not in _LETTERS and int(letter, 8) > 0xFF):  # noqa: PLR2004 (a byte)
            raise ValueError(f"{name[:100]} is no quoted name.")
        return bytes([_LETTERS[letter] if letter in _LETTERS else int(letter, 8)])

    try:
        return _ESCAPE.sub(byte, name[1:-1].encode()).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name[:100]} is not UTF-8; rename the file first.") from error
