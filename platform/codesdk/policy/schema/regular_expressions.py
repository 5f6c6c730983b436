"""The function `matches` of conditions: patterns are written out and checked at load, and a match has bounded cost.

CEL's own `matches` compiles its pattern again for each call, at milliseconds for a large one, and a list in a call's input
can make it run 10,000 times. It also reports an invalid pattern only when a call is decided.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import re2
from cel_expr_python import cel

MAX_INSTRUCTIONS = 10_000
"""Size of a compiled pattern. `[a-z]{1000}` has 1,000 instructions, `\\pL{100}` 120,000."""
MAX_STEPS = 40_000_000
"""Characters times instructions in one evaluation. The worst pattern needs a second for 22 million of them (measured)."""
NAME = "matches"
_OURS = "_search"
"""The name under which expressions call our function. As long as `matches`, so positions in errors stay right."""
_LITERAL = re.compile(
    r"""//[^\n]*|[rR]?(?:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3})|[rR](?:"[^"\n]*"|'[^'\n]*')"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
_CALL = re.compile(rf"\b{NAME}(?=\s*\()")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class _Spent(threading.local):
    """Steps of the evaluation that this thread is in."""

    steps = 0


_spent = _Spent()


class _Pattern(NamedTuple):
    """A compiled pattern and its size."""

    search: Any
    size: int


def mask_literals(text: str) -> str:
    """Return the expression with the characters of strings and comments replaced by spaces."""
    return _LITERAL.sub(lambda found: " " * len(found[0]), text)


def use_bounded_matches(text: str) -> str:
    """Return the expression with its calls of `matches` turned into calls of our function."""
    at = [found.start() for found in _CALL.finditer(mask_literals(text))]
    for start in at:
        text = f"{text[:start]}{_OURS}{text[start + len(NAME) :]}"
    return text


def restore_name(message: str) -> str:
    """Return an error message with the name that the author wrote."""
    return message.replace(_OURS, NAME)


def pattern_expressions(text: str) -> Iterator[str]:
    """Yield the pattern of each call of `matches`, as written: the last of its arguments."""
    masked = mask_literals(text)
    for found in _CALL.finditer(masked):
        depth, begin = 0, found.end()
        for at in range(found.end(), len(masked)):
            depth += _BRACKETS.get(masked[at], 0)
            if depth == 1 and masked[at] in "(,":
                begin = at + 1
            if depth == 0 and masked[at] == ")":
                yield text[begin:at].strip()
                break


def check_pattern(pattern: str) -> None:
    """Check that a pattern can be used.

    Raises:
        ValueError: it is no regular expression, or too large.
    """
    _compile(pattern)


def begin_evaluation() -> None:
    """Give this thread's next evaluation all of its steps."""
    _spent.steps = 0


def declaration() -> cel.FunctionDecl:
    """Return our function, as a member and with two arguments."""
    kinds, result = [cel.Type.STRING, cel.Type.STRING], cel.Type.BOOL
    return cel.FunctionDecl(
        _OURS,
        [
            cel.Overload(f"{_OURS}_member", result, kinds, is_member=True, impl=_search),
            cel.Overload(f"{_OURS}_global", result, kinds, is_member=False, impl=_search),
        ],
    )


def _search(text: str, pattern: str) -> bool:
    compiled = _compile(pattern)
    _spent.steps += (len(text) + 1) * compiled.size
    if _spent.steps > MAX_STEPS:
        raise ValueError("the texts are too long for its regular expressions")
    return compiled.search(text) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> _Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        made = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else "it does not parse"
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from error
    if made.programsize > MAX_INSTRUCTIONS:
        raise ValueError(f"it is too large ({made.programsize} instructions, at most {MAX_INSTRUCTIONS})")
    return _Pattern(made.search, made.programsize)
