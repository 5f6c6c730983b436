"""Compiles tests on a call's arguments."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any

from codesdk.policy.faults import Unevaluable
from codesdk.policy.schema.host_patterns import host_matcher, host_of
from codesdk.policy.schema.models import ArgumentTest

WORKSPACE = "/workspace"
"""Path of the workspace in a sandbox. Absolute paths below it are treated like relative ones."""
MISSING = object()

Predicate = Callable[[Any], bool]


def glob_matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a text matches one of the patterns. Exact names are looked up in a set."""
    exact = frozenset(pattern for pattern in patterns if not re.search(r"[*?\[]", pattern))
    others = [re.compile(translate(pattern)) for pattern in patterns if pattern not in exact]
    return lambda text: text in exact or any(pattern.match(text) for pattern in others)


def compile_arguments(tests: Mapping[str, ArgumentTest]) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that gives the first test that fails for an input; empty if all pass.

    The function raises Unevaluable if a value has the wrong type for its test.
    """
    compiled = [(pointer, pointer_steps(pointer), test.exists, compile_test(test)) for pointer, test in tests.items()]

    def check(arguments: Mapping[str, Any]) -> str:
        for pointer, steps, exists, holds in compiled:
            value = value_at(arguments, steps)
            if exists is not None and exists is (value is MISSING):
                return f"`{pointer}` is {'missing' if exists else 'there'}"
            if value is MISSING:
                if exists is False:
                    continue
                return f"`{pointer}` is missing"
            try:
                if not holds(value):
                    return f"`{pointer}` is another value"
            except Unevaluable as error:
                raise Unevaluable(f"`{pointer}` {error}") from error
        return ""

    return check


def pointer_steps(pointer: str) -> tuple[str, ...]:
    """Split a JSON pointer into its keys and indexes."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def value_at(value: Any, path: Sequence[str]) -> Any:
    """Return the value at the path, or `MISSING`."""
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def compile_test(test: ArgumentTest) -> Predicate:
    """Return a predicate for a value that is present. It raises Unevaluable if the type is wrong."""
    tests: list[Predicate] = []
    if "eq" in test.model_fields_set:
        tests.append(lambda value: _json_equal(value, test.eq))
    if test.in_ is not None:
        options = test.in_
        tests.append(lambda value: any(_json_equal(value, option) for option in options))
    for bound, compare in (
        (test.gt, lambda value, bound: value > bound),
        (test.ge, lambda value, bound: value >= bound),
        (test.lt, lambda value, bound: value < bound),
        (test.le, lambda value, bound: value <= bound),
    ):
        if bound is not None:
            tests.append(lambda value, bound=bound, compare=compare: compare(_number(value), bound))  # type: ignore[misc]
    if test.glob is not None:
        fits = glob_matcher(test.glob)
        tests.append(lambda value: fits(_text(value)))
    if test.host is not None:
        matches_host = host_matcher(test.host)
        tests.append(lambda value: matches_host(host_of(_text(value))))
    if test.beneath is not None:
        roots = [_workspace_path(root) for root in test.beneath]
        tests.append(lambda value: _is_beneath(_workspace_path(_text(value)), roots))
    # Most arguments have one test. Call it directly, because this runs for many rules of each call.
    return tests[0] if len(tests) == 1 else lambda value: all(one(value) for one in tests)


def _json_equal(value: Any, wanted: Any) -> bool:
    """Compare as JSON: `true` is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unevaluable("is not a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unevaluable("is not a string")
    return value


@lru_cache(maxsize=1024)
def _workspace_path(path: str) -> str | None:
    """Return the path relative to the workspace, with `.` and `..` resolved lexically; None if outside."""
    if "\0" in path:
        raise Unevaluable("holds a NUL")
    whole = posixpath.normpath(posixpath.join(WORKSPACE, path))
    whole = "/" + whole.lstrip("/")
    if whole == WORKSPACE:
        return "."
    return whole.removeprefix(WORKSPACE + "/") if whole.startswith(WORKSPACE + "/") else None


def normalized_folder(root: str) -> str | None:
    """Return a `beneath` folder as the index stores it; None if outside the workspace."""
    return _workspace_path(root)


def ancestors(value: Any) -> Iterator[str]:
    """Yield the path and every folder above it, ending with `.`; nothing for a path outside the workspace.

    Raises:
        Unevaluable: the value is not a path.
    """
    path = _workspace_path(_text(value))
    while path is not None and path != ".":
        yield path
        path = posixpath.dirname(path) or "."
    if path is not None:
        yield path


def _is_beneath(path: str | None, roots: Sequence[str | None]) -> bool:
    if path is None:
        return False
    return any(root is not None and (root in (".", path) or path.startswith(root + "/")) for root in roots)
