"""Parses `test …`, `[ … ]` and `[[ … ]]` and finds words that the shell would evaluate."""

from __future__ import annotations

import re
from collections.abc import Sequence

from codesdk.policy.shell.options import WordIndexes
from codesdk.policy.shell.words import Word, unquote

_RAW_WORD = r"""(?:[^\s'"\\;&|()<>`#]|'[^']*'|"(?:[^"\\`]|\\.)*"|\\[^\n])+"""
_WORDS = re.compile(_RAW_WORD, re.DOTALL)
_BRACKET_TEXT = re.compile(rf"{_RAW_WORD}(?:[ \t]+{_RAW_WORD})+", re.DOTALL)
_CLOSING = {"[": "]", "[[": "]]"}
_COMPARISONS = frozenset(("=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"))
_ARITHMETIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_UNARY = re.compile(r"-[a-zA-Z]")
_SUBSCRIPTED = ("-v", "-R")
"""Operators that evaluate subscripts: `test -v 'a[$(id)]'` runs `id`."""


def bracket_words(text: str) -> tuple[Word, ...]:
    """Return the words of `[ … ]` or `[[ … ]]`; none if it contains a shell operator or anything that runs."""
    if not _BRACKET_TEXT.fullmatch(text):
        return ()
    raw = _WORDS.findall(text)
    words = tuple(unquote(one) for one in raw[1:])
    if raw[-1] != _CLOSING.get(raw[0]) or not all(word.literal or word.plain for word in words):
        return ()
    return (Word(raw[0]), *words)


def evaluated_words(words: Sequence[Word]) -> WordIndexes:
    """Yield the indexes of words that the shell evaluates, or that may expand to an operator that does."""
    name = words[0].text
    closed = name in _CLOSING and words[-1].text == _CLOSING[name]
    arguments = range(1, len(words) - 1 if closed else len(words))
    for at in arguments:
        word = words[at]
        # `[[` does not expand file names.
        named = word.glob and name != "[["
        if named or word.text in _SUBSCRIPTED or "$(" in word.text or "`" in word.text:
            yield at
    if name == "[[":
        yield from _arithmetic(words, arguments)
    elif any(words[at].dynamic for at in arguments) and not _is_unambiguous([words[at] for at in arguments]):
        yield from (at for at in arguments if words[at].dynamic)


def _arithmetic(words: Sequence[Word], arguments: range) -> WordIndexes:
    """Flag operands that are not plain numbers: `[[ a -eq b ]]` evaluates both sides, including subscripts."""
    for at in arguments:
        if words[at].text in _ARITHMETIC:
            yield from (
                side
                for side in (at - 1, at + 1)
                if side in arguments and not (words[side].literal and _NUMBER.fullmatch(words[side].text))
            )


def _is_unambiguous(arguments: Sequence[Word]) -> bool:
    """Return whether the expression has one meaning for all values of its variables, as `-n "$x"` and `"$x" = y` do."""
    if arguments[0].text == "!" and arguments[0].literal:
        arguments = arguments[1:]
    if any(word.dynamic and not word.single for word in arguments):
        return False
    texts = [word.text if word.literal else "" for word in arguments]
    if len(texts) == 3:  # noqa: PLR2004 (two sides and what compares them)
        return texts[1] in _COMPARISONS
    return len(texts) == 1 or (len(texts) == 2 and _UNARY.fullmatch(texts[0]) is not None)  # noqa: PLR2004
