"""File names as git writes them in a diff: in quotes, with escapes, where they hold anything unusual. Pure."""

from __future__ import annotations

import re

from codesdk.tools.hunks import PatchRejected

_ESCAPE = re.compile(rb"\\([abtnvfr\"\\]|[0-7]{3})|\\")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


def unquote_path(name: str) -> str:
    """The name itself.

    Raises:
        PatchRejected: an escape that git does not write, or bytes that are no UTF-8.
    """
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):  # noqa: PLR2004 (two quotes)
        return name

    def byte(found: re.Match[bytes]) -> bytes:
        letter = found[1]
        if letter is None or (letter not in _LETTERS and int(letter, 8) > 0xFF):  # noqa: PLR2004 (a byte)
            raise PatchRejected(f"{name[:100]} is no quoted name.")
        return bytes([_LETTERS[letter] if letter in _LETTERS else int(letter, 8)])

    try:
        return _ESCAPE.sub(byte, name[1:-1].encode()).decode()
    except UnicodeDecodeError as error:
        raise PatchRejected(f"{name[:100]} is not UTF-8; rename the file first.") from error


def quote_path(name: str) -> str:
    """The name as git writes it: in quotes where it holds anything that could be read as something else."""
    plain = name.isprintable() and not set(name) & set('"\\') and name == name.strip()
    if plain:
        return name
    kept = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in _bytes(name))  # noqa: PLR2004 (ASCII)
    return f'"{"".join(kept)}"'


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
