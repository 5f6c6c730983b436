"""Source text to syntax trees, by one thread at a time."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
"""CPython before 3.12 counts how deep it builds a tree in one place for all threads (python/cpython issue 106905).

Where a collection of garbage lets another thread begin a tree meanwhile, one of the two ends with a SystemError.
"""


def parse_module(source: str) -> ast.Module:
    """The tree of a module that is our own.

    Raises:
        SyntaxError: it is none of Python.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
