"""Decides whether a call may touch a path that matches `paths`: no, maybe or certainly.

An ask or a deny matches if one path may match. An allow, and the `unless` of an ask or a deny, needs every path of the call
to match with certainty, and never matches a command: what a program opens is more than what its line names.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from codesdk.policy.matching.call_paths import CallPaths
from codesdk.policy.matching.path_globs import ANY, PathSet, is_known, without_proc_links
from codesdk.policy.schema.models import PathMatcher
from codesdk.policy.shell.patterns import Fit


class PathMatch(NamedTuple):
    """The result for one call."""

    fit: Fit
    why: str = ""
    command: str = ""


class PathConditions:
    """A compiled `paths`."""

    def __init__(self, matcher: PathMatcher) -> None:
        self._set = PathSet(matcher.any_of, matcher.except_ or ())

    def may_match(self, paths: CallPaths) -> PathMatch:
        """Return the most certain match of any path of the call."""
        found = self._set.fresh()
        best = PathMatch(Fit.NO, "names no such path")
        for named in paths.named:
            for path in _from_bases(named.path, paths.bases):
                fit, pattern = found.find(path)
                fit = fit if named.certain else min(fit, Fit.MAYBE)
                if fit > best.fit:
                    verb = "matches" if fit is Fit.YES else "may match"
                    best = PathMatch(fit, f"`{_short(named.shown)}` {verb} `{pattern}`", named.command)
                if best.fit is Fit.YES:
                    return best
        if paths.too_many:  # as if it matched: a call must not hide one path behind others
            return PathMatch(Fit.YES, "the call names more paths than are compared; name fewer in one call")
        if best.fit is Fit.NO:
            for read in paths.read:
                for path in _from_bases(read.path, paths.bases):
                    pattern = found.held_by(path, hidden=read.hidden)
                    if pattern:
                        why = f"all of `{_short(read.shown)}` is read, which may hold `{pattern}`"
                        return PathMatch(Fit.MAYBE, why, read.command)
        return best

    def covers(self, paths: CallPaths) -> PathMatch:
        """Return whether every path of a call without a command matches with certainty."""
        found = self._set.fresh()
        for named in paths.named:
            if not is_known(named.path) or found.find(named.path)[0] is not Fit.YES:
                return PathMatch(Fit.NO, f"`{_short(named.shown)}` is another path")
        if paths.too_many:
            return PathMatch(Fit.NO, "names more paths than are compared")
        return PathMatch(Fit.YES) if paths.named else PathMatch(Fit.NO, "names no path")


def _from_bases(path: str, bases: tuple[str, ...]) -> Iterator[str]:
    paths = [path]
    if not path.startswith(("/", "~")):
        paths += (posixpath.join(base, path) for base in bases)
    for one in paths:
        yield one
        if behind := without_proc_links(one):
            yield behind


def _short(text: str) -> str:
    shown = text.replace("`", "'").replace(ANY, "*")
    return shown if len(shown) <= 80 else shown[:79] + "…"  # noqa: PLR2004 (as a command is shown)
