"""Applies hunks to a text: exact content, at the place that the hunk states or at the only one where it fits. Pure.

Only the ends of lines and a byte order mark may differ: the file keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from codesdk.domain.model import FrozenModel
from codesdk.domain.patch_headers import BOM
from codesdk.domain.work_budget import WorkBudget
from codesdk.tools.nearest_lines import nearest_lines, shown
from codesdk.tools.text_lines import line_number, skip_lines, split_lines

MAX_WORK = 32 * 1024 * 1024
"""Characters read and searched for all hunks of all files of one patch: half a second at most. `str.find` takes linear
time for any text, but thousands of hunks that are not at their stated lines would each search the file."""
MAX_PLACES = 5
"""Places that are named if a hunk fits at several."""
_SMALL = 64


class PatchRejected(Exception):
    """The patch is malformed or does not fit; the message names file, hunk and what was expected."""


class Hunk(FrozenModel):
    """One place. Lines keep their line end."""

    start: int | None
    """First line of the old text, 1-based; 0 for a new file; None if the hunk doesn't say."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    anchors: tuple[str, ...] = ()
    """Lines that come before it, one after the other (`@@ class A`)."""
    at_end: bool = False
    """It ends the file, says the patch."""
    restarts: bool = False
    """It is searched from the beginning again, in what the hunks before have made: the first of a repeated file."""


class HunkMisplaced(PatchRejected):
    """The lines of a hunk are not in the text."""

    def __init__(self, where: str, hunk: Hunk, text: str) -> None:
        super().__init__(where, hunk, text)
        self._where, self._hunk, self._text = where, hunk, text

    def __str__(self) -> str:
        return self.explain(str)

    def explain(self, clean: Callable[[str], str]) -> str:
        """The message; `clean` takes out of the text what its reader may not see."""
        return f"{self._where}: {_explain_misplaced(self._hunk, clean(self._text))}."


class _Fit(NamedTuple):
    """A place where a hunk fits, and what it makes of it."""

    at: int
    end: int
    new: str


class _Spelling(NamedTuple):
    old: str
    new: str


class _Place:
    """How far a file's hunks have been applied, and what may still be searched."""

    def __init__(self, text: str, budget: WorkBudget) -> None:
        self.text = text
        self.budget = budget
        self.at = 0
        """Where the rest begins."""
        self.line = 0
        """Lines before that."""
        self.has_crlf = "\r\n" in text
        self._ends_bare = bool(text) and not text.endswith("\n")

    def after(self, lines: int) -> int | None:
        """The position after that many lines of the file; None if it is outside of the rest."""
        if lines < self.line:
            return None
        found = skip_lines(self.text, self.at, lines - self.line)
        self.budget.spend(_SMALL + (len(self.text) if found is None else found) - self.at)
        return found

    def fit(self, hunk: _Spelling, at: int) -> _Fit | None:
        """How the lines fit here, if they do. `at` begins a line."""
        old, new = hunk
        text = self.text
        self.budget.spend(len(old))
        if at == 0 and text.startswith(BOM) and not old.startswith(BOM):
            at = 1
        if text.startswith(old, at) and (old.endswith("\n") or at + len(old) == len(text)):
            return _Fit(at, at + len(old), new)
        bare = _without_end(old)
        # The last line of the file has no newline, and the hunk doesn't say so: it stays without.
        if self._ends_bare and bare and at + len(bare) == len(text) and text.startswith(bare, at):
            return _Fit(at, len(text), _without_end(new))
        return None

    def find(self, hunk: _Spelling, start: int) -> _Fit | None:
        """The next place from `start` on where these lines are."""
        text, old = self.text, hunk.old
        if (start == 0 or text[start - 1] == "\n") and (found := self.fit(hunk, start)):
            return found
        if old.endswith("\n"):
            at = text.find("\n" + old, start) + 1
            self.budget.spend(len(old) + (at or len(text)) - start)
            if at:
                return _Fit(at, at + len(old), hunk.new)
        last = len(text) - len(_without_end(old))
        return self.fit(hunk, last) if last > start and text[last - 1] == "\n" else None

    def at_end(self, hunk: _Spelling) -> _Fit | None:
        """The place at the end of the text, if the lines are there."""
        text = self.text
        for length in (len(hunk.old), len(_without_end(hunk.old))):
            at = len(text) - length
            begins = at >= self.at and (at == 0 or text[at - 1] == "\n")
            if begins and (found := self.fit(hunk, at)) and found.end == len(text):
                return found
        return None

    def after_anchors(self, anchors: tuple[str, ...], where: str) -> list[int]:
        """The positions after the lines that come before a hunk; none if they are not in the rest."""
        starts = [self.at]
        for anchor in anchors:
            found: dict[int, None] = {}
            for start in starts:
                found |= dict.fromkeys(self._ends_of(anchor.strip(), start, where))
            starts = list(found)[: MAX_PLACES + 1]
        return starts if anchors else []

    def _ends_of(self, anchor: str, start: int, where: str) -> list[int]:
        """Where lines end that are the anchor, or begin with it if there is none. Their indentation does not count."""
        same: list[int] = []
        longer: list[int] = []
        at = start
        while len(same) <= MAX_PLACES and (at := self.text.find(anchor, at)) >= 0:
            begin = self.text.rfind("\n", 0, at) + 1
            end = self.text.find("\n", at) + 1 or len(self.text)
            if not self.budget.spend(_SMALL + end - begin):
                raise _too_costly(where)
            line = self.text[begin:end].strip()
            if line == anchor:
                same.append(end)
            elif line.startswith(anchor) and len(longer) <= MAX_PLACES:
                longer.append(end)
            at = end
        self.budget.spend(len(self.text) - start)
        return same or longer


def apply_hunks(hunks: tuple[Hunk, ...], text: str, path: str, budget: WorkBudget, *, deletes: bool = False) -> str:
    """The text after the hunks; `path` is for messages.

    Deletes: the file goes, so the hunks must cover all of it.

    Raises:
        PatchRejected: a hunk does not fit, fits in several places and states none of them, or the budget is spent.
    """
    place = _Place(text, budget)
    done: list[str] = []
    for number, hunk in enumerate(hunks, start=1):
        where = f"{path}, hunk {number}"
        if hunk.restarts:
            text = "".join([*done, place.text[place.at :]])
            if not budget.spend(len(text)):
                raise _too_costly(where)
            place, done = _Place(text, budget), []
        fit = _locate(place, hunk, where)
        done += (place.text[place.at : fit.at], fit.new)
        place.line += place.text.count("\n", place.at, fit.end)
        place.at = fit.end
        budget.spend(len(fit.new))
    text = place.text
    if deletes and (place.at < len(text) or any(part.strip(BOM) for part in done)):
        raise PatchRejected(f"{path}: the diff deletes the file but does not cover all of it; use workspace.delete.")
    return "".join([*done, text[place.at :]])


def _locate(place: _Place, hunk: Hunk, where: str) -> _Fit:
    """Where the hunk goes: at its stated line, at the end if it says so, after its anchors, or where alone it fits."""
    if not hunk.old:
        return _insertion(place, hunk, where)
    # A line without its newline can only be the last; an empty one is none.
    if not all(line.endswith("\n") for line in hunk.old[:-1]) or not hunk.old[-1]:
        raise HunkMisplaced(where, hunk, place.text)
    spellings = tuple(_spellings(hunk, has_crlf=place.has_crlf))
    if fit := _stated_fit(place, hunk, spellings):
        return fit
    if starts := place.after_anchors(hunk.anchors, where):
        firsts = (place.find(spelling, start) for start in starts for spelling in spellings)
        fits = {fit.at: fit for fit in firsts if fit}
    else:
        fits = _search(place, spellings)
    if place.budget.left < 0:
        raise _too_costly(where, hunk.start)
    if not fits and starts and (elsewhere := _search(place, spellings)):
        numbers = sorted(line_number(place.text, at) for at in elsewhere)
        raise PatchRejected(f"{where}: its lines are at lines {numbers}, which is not after {shown(hunk.anchors[-1])}.")
    if not fits:
        raise HunkMisplaced(where, hunk, place.text)
    if len(fits) > 1:
        numbers = sorted(line_number(place.text, at) for at in fits)
        hint = "correct the line number" if hunk.start is not None else "name the line above it after `@@`"
        raise PatchRejected(f"{where}: its context fits at lines {numbers}; add context or {hint}.")
    return next(iter(fits.values()))


def _stated_fit(place: _Place, hunk: Hunk, spellings: tuple[_Spelling, ...]) -> _Fit | None:
    """How it fits at its line, or at the end of the file where it says that it is there."""
    stated = None if hunk.start is None else place.after(max(hunk.start - 1, 0))
    fits = (place.fit(spelling, stated) for spelling in spellings if stated is not None)
    at_end = (place.at_end(spelling) for spelling in spellings if hunk.at_end)
    return next((fit for fit in (*fits, *at_end) if fit), None)


def _search(place: _Place, spellings: tuple[_Spelling, ...]) -> dict[int, _Fit]:
    """The first places where the lines are."""
    found: dict[int, _Fit] = {}
    for spelling in spellings:
        start = place.at
        while len(found) < MAX_PLACES and (fit := place.find(spelling, start)):
            found.setdefault(fit.at, fit)
            start = max(fit.at, start) + 1
    return found


def _spellings(hunk: Hunk, *, has_crlf: bool) -> Iterator[_Spelling]:
    """The hunk as it is, and with the other line ends where the file or the hunk has both kinds."""
    old, new = "".join(hunk.old), "".join(hunk.new)
    yield _Spelling(old, new)
    lf = _Spelling(old.replace("\r\n", "\n"), new.replace("\r\n", "\n"))
    if lf.old != old:
        yield lf
    if has_crlf and (crlf := lf.old.replace("\n", "\r\n")) != old:
        yield _Spelling(crlf, lf.new.replace("\n", "\r\n"))


def _insertion(place: _Place, hunk: Hunk, where: str) -> _Fit:
    """A hunk that only adds lines goes after the line that its header states, to the end, or into an empty file."""
    text = place.text
    at: int | None = None
    if hunk.at_end or (hunk.start is None and not text.strip(BOM)):
        at = len(text)
    elif hunk.start is not None:
        at = place.after(hunk.start)
        if at is None:
            raise PatchRejected(f"{where}: line {hunk.start} is outside the file ({len(split_lines(text))} lines).")
        at = max(at, int(text.startswith(BOM)))
    if at is None:
        raise PatchRejected(f"{where}: it only adds lines and does not say where; add the line above or below them.")
    new = "".join(hunk.new)
    end = text.rfind("\n", 0, at) if at else text.find("\n")
    if end > 0 and text[end - 1] == "\r" and "\r\n" not in new:
        new = new.replace("\n", "\r\n")
    if at == len(text) and text.strip(BOM) and not text.endswith("\n") and new.endswith("\n"):
        new = ("\r\n" if new.endswith("\r\n") else "\n") + _without_end(new)
    return _Fit(at, at, new)


def _explain_misplaced(hunk: Hunk, text: str) -> str:
    """Where the text is most like a hunk that does not fit, and the first line that differs there."""
    old = "".join(hunk.old)
    if text.startswith(old) or f"\n{old}" in text:
        return "its context is only above the end of an earlier hunk; put hunks in the order of the file"
    near = nearest_lines(hunk.old, text, hunk.start)
    if near is not None:
        last = near.line + len(near.lines) - 1
        return f"{near.difference} (nearest: lines {near.line} to {last})"
    return _first_mismatch(text, hunk)


def _first_mismatch(text: str, hunk: Hunk) -> str:
    """The first line that is not as the hunk says, where the hunk says that it is."""
    if hunk.start is None:
        return f"no line of the file is like {shown(hunk.old[0])}"
    first = max(hunk.start - 1, 0)
    at = skip_lines(text, 0, first)
    at = len(text) if at is None else at
    for number, wanted in enumerate(hunk.old, start=first):
        end = text.find("\n", at) + 1 or len(text)
        found, at = text[at:end], end
        if found != wanted:
            same = found.rstrip() == wanted.rstrip()  # only the ends differ: CRLF, blanks, no newline at the file's end
            want, have = (wanted, found) if same else (wanted.rstrip(), found.rstrip())
            return f"expected {shown(want)} at line {number + 1}, found {shown(have) if found else '(end of file)'}"
    return f"its context is above line {first + 1}, where an earlier hunk ends"


def _without_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")


def _too_costly(where: str, start: int | None = None) -> PatchRejected:
    stated = f"it is not at line {start}, and " if start is not None else ""
    return PatchRejected(
        f"{where}: {stated}looking for the places of so many lines takes too long."
        " Correct the line numbers, or send a smaller patch."
    )
