"""Removes the quotes of a shell word, and records what is only known at run time."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from codesdk.policy.shell.substitutions import substitution_end

_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+^-]+")
_LITERAL = r"""(?:[A-Za-z0-9_./:=,@%+^-]++|'[^']*+'|"[^"$`\\]*+")"""
_LITERAL_COMMAND = rf"(?![A-Za-z0-9_./:,@%+^-]*+=){_LITERAL}(?: ++{_LITERAL})*+"
"""The command word has no `=`, which may be an assignment."""
_CONNECTOR = r"(?:&&|\|\|?|;)"
_LITERAL_LINE = re.compile(rf"{_LITERAL_COMMAND}(?: *+{_CONNECTOR} *+{_LITERAL_COMMAND})*+")
_LITERAL_TOKEN = re.compile(rf"{_LITERAL}|{_CONNECTOR}")
_CONNECTORS = frozenset(("&&", "||", "|", ";"))
# Characters after which `$` is an expansion; before any other it is literal.
_EXPANDS = re.compile(r"[A-Za-z0-9_@*#?$!({\[-]")
# A variable or a number of the shell (`$?`), also with a plain default, a part of it removed or replaced, or its length; a
# sum of numbers. No subscript, indirection, transformation or assignment, and no variable in a sum: bash evaluates its text.
_VALUE = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[?$#](?![A-Za-z0-9_{(\[])|\(\([0-9+\-*/% ]*\)\)"
    r"|\{#?[A-Za-z_][A-Za-z0-9_]*\}|\{[A-Za-z_][A-Za-z0-9_]*(?:##?|%%?|//?|:?[-+])[A-Za-z0-9_.,/:@*?+-]*\})"
)
_NAMED_OPTION = re.compile(r"--[A-Za-z0-9][A-Za-z0-9-]*=")
PIPE_FOLDER = "/dev/fd/"
"""Begin of the path that replaces a process substitution."""
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
    """A word as the program would receive it, as far as that is known without running anything."""

    text: str
    dynamic: bool = False
    """Contains an expansion; `text` is only what precedes it."""
    glob: bool = False
    """Contains an unquoted `*`, `?` or `[`, so it may expand to file names."""
    broken: bool = False
    """Not a single shell word: the surrounding text was misparsed."""
    plain: bool = False
    """Dynamic only through variables (`$HOME`, `"${x}"`, `$?`) and `scripts`, so expanding it runs nothing else."""
    single: bool = False
    """For a plain word: always exactly one argument, because its unknown parts are quoted."""
    scripts: tuple[str, ...] = ()
    """For a plain word: the commands in its substitutions `$(…)`, `<(…)`, `>(…)` and backquotes."""
    rest: str = ""
    """Of a dynamic word: what follows `text`, as it is written."""

    @property
    def may_be_option(self) -> bool:
        """Return whether the word may expand to an unknown option: a glob (`*`, `--out*`) or a variable."""
        if not (self.dynamic or self.glob):
            return False
        if self.dynamic and not self.single:
            return True
        # The name of `--since="$x"` is known.
        return self.text[:1] in "*?[-" and (self.glob or not _NAMED_OPTION.match(self.text))

    @property
    def literal(self) -> bool:
        """Return whether the program receives exactly `text` (or file names, if `glob`)."""
        return not self.dynamic and not self.broken


UNKNOWN = Word("", dynamic=True)
"""An argument from elsewhere: standard input of `xargs`, a found file."""


def literal_commands(text: str) -> list[list[Word]]:
    """Return the words of each command of a list or pipeline, in order.

    Nothing if the text has anything but plain and wholly quoted words, blanks, and `&&`, `||`, `|` or `;` between commands.
    """
    if not _LITERAL_LINE.fullmatch(text):
        return []
    words: list[Word] = []
    commands = [words]
    for token in _LITERAL_TOKEN.findall(text):
        if token in _CONNECTORS:
            words = []
            commands.append(words)
        else:
            words.append(Word(token[1:-1] if token[0] in "'\"" else token))
    return commands


def unquote(raw: str) -> Word:
    """Return the word that bash makes of `raw`. Never fails; marks what it can't parse."""
    if _PLAIN.fullmatch(raw):
        return Word(raw)
    return Word("", broken=True) if raw.startswith("#") else _Reader(raw).read()


class _Stop(Exception):
    """Stops parsing: the rest can't change the result."""

    def __init__(self, dynamic: bool) -> None:
        super().__init__()
        self.dynamic = dynamic


class _Reader:
    def __init__(self, raw: str) -> None:
        self._raw = raw
        self._at = 0
        self._out: list[str] = []
        self._glob = False
        self._known: str | None = None  # the text before the first variable
        self._unread = 0  # where that variable starts
        self._single = True
        self._scripts: list[str] = []
        # Braces expand if a comma or two dots and a closing brace follow. Being too cautious here is fine.
        closing = raw.rfind("}")
        self._braces_until = max(raw.rfind(",", 0, max(closing, 0)), raw.rfind("..", 0, max(closing, 0)))

    def read(self) -> Word:
        try:
            while self._at < len(self._raw):
                self._step(self._raw[self._at])
        except _Stop as stop:
            dynamic = stop.dynamic or self._known is not None
            rest = self._raw[self._at if self._known is None else self._unread :] if dynamic else ""
            return Word(self._text(), dynamic=dynamic, glob=self._glob, broken=not dynamic, rest=rest)
        if self._known is None:
            return Word(self._text(), glob=self._glob)
        single = self._single and not self._glob
        return Word(
            self._known,
            dynamic=True,
            glob=self._glob,
            plain=True,
            single=single,
            scripts=tuple(self._scripts),
            rest=self._raw[self._unread :],
        )

    def _text(self) -> str:
        return "".join(self._out) if self._known is None else self._known

    def _value(self, *, quoted: bool) -> None:
        """Skip a variable or a command substitution. Any other expansion stops parsing."""
        match = _VALUE.match(self._raw, self._at)
        if match is None:
            if not self._raw.startswith("$(", self._at) or self._raw.startswith("$((", self._at):
                raise _Stop(dynamic=True)
            self._substitution(substitution_end(self._raw, self._at + 2), self._at + 2)
        else:
            self._begin_unknown()
            self._at = match.end()
        self._single = self._single and quoted

    def _begin_unknown(self) -> None:
        """Note that what follows is only known at run time."""
        if self._known is None:
            self._known, self._unread = self._text(), self._at

    def _substitution(self, end: int, start: int) -> None:
        """Skip commands that end with one character before `end`, and keep them."""
        if end < 0:
            raise _Stop(dynamic=True)
        self._begin_unknown()
        self._scripts.append(self._raw[start : end - 1])
        self._at = end

    def _backquotes(self, *, quoted: bool) -> None:
        """Skip commands in backquotes. With backslashes or double quotes in them, their text is not certain."""
        start = self._at + 1
        end = self._raw.find("`", start)
        inner = self._raw[start:end]
        if end < 0 or "\\" in inner or (quoted and '"' in inner):
            raise _Stop(dynamic=True)
        self._substitution(end + 1, start)
        self._single = self._single and quoted

    def _process(self) -> None:
        """Skip a process substitution, which bash replaces by the name of a pipe."""
        if self._known is None:
            self._out.append(PIPE_FOLDER)
        self._substitution(substitution_end(self._raw, self._at + 2), self._at + 2)

    def _step(self, char: str) -> None:
        if char == "\\":
            self._backslash()
        elif char == "'":
            self._out.append(self._until_quote(self._at + 1))
        elif char == '"':
            self._double_quoted()
        elif char == "$":
            self._dollar()
        elif char == "`":
            self._backquotes(quoted=False)
        elif char in "<>" and self._raw[self._at + 1 : self._at + 2] == "(":
            self._process()
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
                self._backquotes(quoted=True)
            elif char == "$" and _EXPANDS.match(following):
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
            if self._raw.startswith("\\x{", self._at):
                _unreadable_escape()  # bash reads the number in the braces
            escape = _ANSI_C.match(self._raw, self._at) if char == "\\" else None
            self._out.append(_ansi_c_character(escape) if escape else char)
            self._at = escape.end() if escape else self._at + 1
        raise _Stop(dynamic=False)


def _ansi_c_character(escape: re.Match[str]) -> str:
    """Decode one escape of `$'…'`. Refuses NUL, which ends the word, and bytes above 127, which bash joins to UTF-8."""
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
