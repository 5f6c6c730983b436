"""Finds patterns of `paths` that have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from codesdk.policy.matching.path_globs import PathSet, is_known, with_marks
from codesdk.policy.schema.models import PathMatcher
from codesdk.policy.shell.patterns import Fit


def unused_path_patterns(paths: PathMatcher) -> Iterator[str]:
    """Yield what is wrong with patterns that can't match, or that another pattern includes."""
    excepted = {text.lower() for text in paths.except_ or ()}
    for pattern in paths.any_of:
        others = [other for other in paths.any_of if other != pattern]
        if pattern.lower() in excepted:
            yield f"never matches `{pattern}`: `except` has it."
        elif is_known(with_marks(pattern)) and others and PathSet(others).find(pattern)[0] is Fit.YES:
            yield f"needs no `{pattern}`: another of its patterns matches it."
