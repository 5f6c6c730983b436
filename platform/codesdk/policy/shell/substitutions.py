"""Finds where a substitution ends. Gives up on constructs that parsers may read differently, so that a person decides."""

from __future__ import annotations

import re

_MAX_NESTING = 8
_PLAIN = re.compile(r"[^'\"\\$`()#<c]+")
_CASE = re.compile(r"case(?![A-Za-z0-9_.-])")
_WORD_CHARACTER = re.compile(r"[A-Za-z0-9_./:=,@%+^~*?\]}-]")
_VARIABLE = re.compile(r"\$(?:[A-Za-z0-9_?$#]|\{#?[A-Za-z_][A-Za-z0-9_]*(?:[#%/:+-][^'\"\\$`(){}]*)?\})")
_DOUBLE_QUOTED = re.compile(r"(?:[^\"\\$`]|\\.)+", re.DOTALL)


def substitution_end(text: str, at: int, nesting: int = 0) -> int:  # noqa: C901, PLR0912 (a tokenizer: a branch for each kind of token)
    """Return the index behind the `)` that ends the commands which start at `at`; -1 if that is not certain.

    Not certain, because bash and other readers may disagree: comments, here-documents and here-strings, `case`, `$'…'`, and
    backquotes inside; nor with too many substitutions in one another.
    """
    if nesting > _MAX_NESTING:
        return -1
    depth = 1
    while at < len(text):
        char = text[at]
        if match := _PLAIN.match(text, at):
            at = match.end()
        elif char == ")":
            depth -= 1
            at += 1
            if not depth:
                return at
        elif char == "(":
            depth += 1
            at += 1
        elif char == "'":
            at = text.find("'", at + 1) + 1
        elif char == '"':
            at = _double_quoted_end(text, at + 1, nesting)
        elif char == "\\":
            at += 2
        elif char == "$":
            at = _expansion_end(text, at, nesting)
        elif char == "<":
            at = at + 1 if text[at + 1 : at + 2] != "<" else 0
        elif char == "c":
            begins = not _WORD_CHARACTER.match(text[at - 1])
            at = 0 if begins and _CASE.match(text, at) else at + 1
        elif char == "#":
            at = at + 1 if _WORD_CHARACTER.match(text[at - 1]) else 0
        else:
            return -1
        if at <= 0:
            return -1
    return -1


def _double_quoted_end(text: str, at: int, nesting: int) -> int:
    """Return the index behind the closing quote; 0 if it is not certain."""
    while at < len(text):
        if match := _DOUBLE_QUOTED.match(text, at):
            at = match.end()
        elif text[at] == '"':
            return at + 1
        elif text[at] == "$":
            at = _expansion_end(text, at, nesting)
        else:
            return 0
        if at <= 0:
            return 0
    return 0


def _expansion_end(text: str, at: int, nesting: int) -> int:
    """Return the index behind an expansion; 0 if it is not certain."""
    if match := _VARIABLE.match(text, at):
        return match.end()
    following = text[at + 1 : at + 2]
    if following == "(":
        return 0 if text[at + 2 : at + 3] == "(" else max(substitution_end(text, at + 2, nesting + 1), 0)
    return 0 if following in ("'", '"', "{", "[", "") else at + 1
