r"""Spells file names as text that every client can send back: control characters and bytes that aren't UTF-8 as `\xNN`.

A backslash that would begin such an escape is `\x5c`, so that a spelling names one file. All other names are spelled as
they are. No other character has an escape: a rule about paths sees each name as it is written.
"""

from __future__ import annotations

import os

_HEX = "0123456789abcdef"
_DELETE = 0x7F
_FIRST_HIGH = 0x80
_BACKSLASH = 0x5C
_ESCAPE_LENGTH = 4


def spell(name: str | bytes) -> str:
    """Return the spelling of a name, given as the file system has it."""
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\x" not in text:
        return text
    pieces = []
    for at, letter in enumerate(text):
        code = ord(letter)
        if "\udc80" <= letter <= "\udcff":
            code -= 0xDC00
        elif not (code < ord(" ") or code == _DELETE or _escaped_byte(text, at) is not None):
            pieces.append(letter)
            continue
        pieces.append("\\x" + _HEX[code >> 4] + _HEX[code & 15])
    return "".join(pieces)


def unspell(spelling: str) -> str:
    """Return the name that a spelling stands for. Text that isn't the spelling of any name stands for itself."""
    if "\\x" not in spelling:
        return spelling
    data = bytearray()
    at = 0
    while at < len(spelling):
        code = _escaped_byte(spelling, at)
        if code is None:
            data += spelling[at].encode("utf-8", "surrogatepass")
            at += 1
        else:
            data.append(code)
            at += _ESCAPE_LENGTH
    name = os.fsdecode(bytes(data))
    return name if spell(name) == spelling else spelling


def _escaped_byte(text: str, at: int) -> int | None:
    """Return the byte whose escape stands at a place of the text, if one does."""
    digits = text[at + 2 : at + _ESCAPE_LENGTH]
    if text[at : at + 2] != "\\x" or len(digits) != 2 or not set(digits) <= set(_HEX):  # noqa: PLR2004 - digits of a byte
        return None
    code = int(digits, 16)
    return code if 0 < code < ord(" ") or code in (_DELETE, _BACKSLASH) or code >= _FIRST_HIGH else None
