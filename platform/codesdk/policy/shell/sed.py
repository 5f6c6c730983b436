"""Checks whether a sed script only edits text: no file writes, no commands."""

from __future__ import annotations

import re

MAX_LENGTH = 8192
"""Characters. A longer script needs human review."""

_NUMBERS = re.compile(r"[0-9]+(~[0-9]+)?|\$|[+~][0-9]+")
_PLAIN_COMMANDS = frozenset("=dDgGhHnNpPxzF{}")
_TEXT_COMMANDS = frozenset("aic")
_TO_LINE_END = frozenset("rR#")
_TO_SEPARATOR = frozenset(":btTv")
_SUBSTITUTE_FLAGS = frozenset("gpiImM0123456789")


_BRACKET = re.compile(r"\[\^?\]?(?:\[[:.=][^\]]*[:.=]\]|[^\]])*\]")


class _NotUnderstood(Exception):
    """The script writes files, runs commands, or can't be parsed."""


def edits_only(script: str) -> bool:
    """Return whether every command of `script` is known and none writes a file or runs anything."""
    if len(script) > MAX_LENGTH:
        return False
    try:
        _Script(script).read()
    except _NotUnderstood:
        return False
    return True


class _Script:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> None:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\n;":
                self._at += 1
            else:
                self._address()
                self._command()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _blanks(self) -> None:
        while self._peek() in (" ", "\t") and self._peek():
            self._at += 1

    def _address(self) -> None:
        while True:
            self._blanks()
            char = self._peek()
            number = _NUMBERS.match(self._text, self._at)
            if number:
                self._at = number.end()
            elif char == "/":
                self._delimited("/", 1)
            elif char == "\\":
                self._at += 1
                self._delimited(self._peek(), 1)
            elif char in (",", "!"):
                self._at += 1
            elif char in ("I", "M"):
                self._at += 1  # modifiers of the preceding regex; no command has these letters
            else:
                return

    def _delimited(self, mark: str, parts: int) -> None:
        """Skip `/…/` (one part) or `s/…/…/` (two); the delimiter may appear unescaped in a bracket expression."""
        if not mark or mark in "\n\\":
            raise _NotUnderstood
        self._at += 1
        while parts:
            char = self._peek()
            if not char:
                raise _NotUnderstood
            if char == "\\":
                self._at += 2
                continue
            # GNU sed ends the regex at a delimiter inside `[…]`, others don't, so such a script is refused.
            if char == "[" and mark in self._bracket():
                raise _NotUnderstood
            parts -= char == mark
            self._at += 1

    def _bracket(self) -> str:
        """Return the bracket expression here. A `]` at its beginning and in `[:…:]` does not end it."""
        found = _BRACKET.match(self._text, self._at)
        if found is None:
            raise _NotUnderstood
        return found[0]

    def _command(self) -> None:
        char = self._peek()
        self._at += 1
        if char in _PLAIN_COMMANDS and char:
            return
        if char in ("s", "y"):
            self._delimited(self._peek(), 2)
            flags = re.compile(r"[A-Za-z0-9]*").match(self._text, self._at)
            if flags is None or (set(flags[0]) - _SUBSTITUTE_FLAGS if char == "s" else flags[0]):
                raise _NotUnderstood
            self._at = flags.end()
        elif char in ("l", "L", "q", "Q"):
            self._skip(re.compile(r"[ \t]*[0-9]*"))
        elif char in _TO_LINE_END:
            self._skip(re.compile(r"[^\n]*"))
        elif char in _TEXT_COMMANDS:
            # Text runs to the end of the line, and continues after a trailing backslash.
            self._skip(re.compile(r"([^\n\\]|\\.)*", re.DOTALL))
        elif char in _TO_SEPARATOR and char:
            self._skip(re.compile(r"[ \t]*[A-Za-z0-9_.-]*"))
        elif char not in (";", "\n"):
            raise _NotUnderstood

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _NotUnderstood
        self._at = match.end()
