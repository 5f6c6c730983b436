"""One shell word: quotes taken off, with a note of everything that only a running shell could know."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+^-]+")
# What makes `$` an expansion; before anything else it is a dollar sign.
_EXPANDS = re.compile(r"[A-Za-z0-9_@*#?$!({\[-]")
# A variable's value as it is, or a number of the shell's own: no default, no subscript, no indirection, no transformation.
_VALUE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\}|[?$#](?![A-Za-z0-9_{(\[]))")
_ENDS_A_WORD = frozenset(" \t\n;&|()<>")
_ESCAPED_IN_DOUBLE_QUOTES = frozenset('$`"\\\n')

_LAST_ASCII = 127
_SURROGATES = range(0xD800, 0xE000)
_ANSI_C = re.compile(
    r"\\(?:x(?P<hex>[0-9A-Fa-f]{1,2})|u(?P<u4>[0-9A-Fa-f]{1,4})|U(?P<u8>[0-9A-Fa-f]{1,8})|(?P<oct>[0-7]{1,3})|c(?P<ctl>.)|(?P<one>.))",
    re.DOTALL,
)
_ANSI_C_ONE = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Word(NamedTuple):
    """A word as the program would get it, as far as that can be known without running anything."""

    text: str
    dynamic: bool = False
    """Holds an expansion, so `text` is only what was read before it."""
    glob: bool = False
    """Holds an unquoted `*`, `?` or `[`: a file's name may stand here."""
    broken: bool = False
    """Is no single shell word; what it was cut from was misread."""
    plain: bool = False
    """Dynamic by nothing but values of variables (`$HOME`, `"${x}"`, `$?`): nothing runs when it is expanded."""
    single: bool = False
    """Of a plain word: exactly one argument, whatever the value is, since all of it that is not known is in quotes."""

    @property
    def may_be_option(self) -> bool:
        """Whether what stands here in the end may begin with a dash: a file's name (`*`, `--out*`), or a variable's value."""
        if self.dynamic and not self.single:
            return True
        return (self.glob or self.dynamic) and self.text[:1] in "*?[-"

    @property
    def literal(self) -> bool:
        """The program gets exactly `text` (or names of files, where `glob`)."""
        return not self.dynamic and not self.broken


UNKNOWN = Word("", dynamic=True)
"""An argument that comes from somewhere else: standard input of `xargs`, a found file."""


def unquote(raw: str) -> Word:
    """The word that bash makes of `raw`; never fails, but says what it could not read."""
    if _PLAIN.fullmatch(raw):
        return Word(raw)
    return Word("", broken=True) if raw.startswith("#") else _Reader(raw).read()


class _Stop(Exception):
    """The rest cannot change the verdict."""

    def __init__(self, dynamic: bool) -> None:
        super().__init__()
        self.dynamic = dynamic


class _Reader:
    def __init__(self, raw: str) -> None:
        self._raw = raw
        self._at = 0
        self._out: list[str] = []
        self._glob = False
        self._known: str | None = None  # what stands before the first value of a variable
        self._single = True
        # A brace expands where a comma or two dots, and then a closing brace, stand behind it; a little too often is fine.
        closing = raw.rfind("}")
        self._braces_until = max(raw.rfind(",", 0, max(closing, 0)), raw.rfind("..", 0, max(closing, 0)))

    def read(self) -> Word:
        try:
            while self._at < len(self._raw):
                self._step(self._raw[self._at])
        except _Stop as stop:
            dynamic = stop.dynamic or self._known is not None
            return Word(self._text(), dynamic=dynamic, glob=self._glob, broken=not dynamic)
        if self._known is None:
            return Word(self._text(), glob=self._glob)
        single = self._single and not self._glob
        return Word(self._known, dynamic=True, glob=self._glob, plain=True, single=single)

    def _text(self) -> str:
        return "".join(self._out) if self._known is None else self._known

    def _value(self, *, quoted: bool) -> None:
        """Step over the value of a variable; anything else that expands ends the reading."""
        match = _VALUE.match(self._raw, self._at)
        if match is None:
            raise _Stop(dynamic=True)
        self._known = self._text()
        self._single = self._single and quoted
        self._at = match.end()

    def _step(self, char: str) -> None:
        if char == "\\":
            self._backslash()
        elif char == "'":
            self._out.append(self._until_quote(self._at + 1))
        elif char == '"':
            self._double_quoted()
        elif char == "$":
            self._dollar()
        elif char == "`" or (char in "<>" and self._raw[self._at + 1 : self._at + 2] == "("):
            raise _Stop(dynamic=True)
        elif char in _ENDS_A_WORD:
            raise _Stop(dynamic=False)
        elif char == "{" and self._at < self._braces_until:
            raise _Stop(dynamic=True)
        else:
            self._glob = self._glob or char in "*?["
            self._out.append(char)
            self._at += 1

    def _backslash(self) -> None:
        following = self._raw[self._at + 1 : self._at + 2]
        if not following:
            raise _Stop(dynamic=False)
        if following != "\n":
            self._out.append(following)
        self._at += 2

    def _until_quote(self, start: int) -> str:
        end = self._raw.find("'", start)
        if end < 0:
            raise _Stop(dynamic=False)
        self._at = end + 1
        return self._raw[start:end]

    def _double_quoted(self) -> None:
        self._at += 1
        while self._at < len(self._raw):
            char = self._raw[self._at]
            following = self._raw[self._at + 1 : self._at + 2]
            if char == '"':
                self._at += 1
                return
            if char == "`":
                raise _Stop(dynamic=True)
            if char == "$" and _EXPANDS.match(following):
                self._value(quoted=True)
            elif char == "\\" and following in _ESCAPED_IN_DOUBLE_QUOTES:
                self._out.append("" if following == "\n" else following)
                self._at += 2
            else:
                self._out.append(char)
                self._at += 1
        raise _Stop(dynamic=False)

    def _dollar(self) -> None:
        following = self._raw[self._at + 1 : self._at + 2]
        if following == "'":
            self._ansi_c()
        elif following == '"':
            self._at += 1
        elif following and _EXPANDS.match(following):
            self._value(quoted=False)
        else:
            self._out.append("$")
            self._at += 1

    def _ansi_c(self) -> None:
        self._at += 2
        while self._at < len(self._raw):
            char = self._raw[self._at]
            if char == "'":
                self._at += 1
                return
            escape = _ANSI_C.match(self._raw, self._at) if char == "\\" else None
            self._out.append(_ansi_c_character(escape) if escape else char)
            self._at = escape.end() if escape else self._at + 1
        raise _Stop(dynamic=False)


def _ansi_c_character(escape: re.Match[str]) -> str:
    """One escape of `$'…'`. NUL ends the word in bash, and bytes above 127 join to UTF-8 there: neither is followed here."""
    kind = escape.lastgroup
    text = escape.group(kind) if kind else ""
    if kind == "one":
        return _ANSI_C_ONE.get(text, text if text in "\\'\"?" else "\\" + text)
    if kind == "ctl":
        return chr(ord(text) & 0x1F) if ord(text) & 0x1F else _unreadable_escape()
    number = int(text, 8 if kind == "oct" else 16)
    joins = kind in ("hex", "oct") and number > _LAST_ASCII
    if number == 0 or joins or number > sys.maxunicode or number in _SURROGATES:
        return _unreadable_escape()
    return chr(number)


def _unreadable_escape() -> str:
    raise _Stop(dynamic=True)
