"""Applies hunks to a text: exact context, at the stated line or at the one place where it fits. Pure."""

from __future__ import annotations

from codesdk.domain.model import FrozenModel
from codesdk.domain.work_budget import WorkBudget

MAX_WORK = 32 * 1024 * 1024
"""Characters read and searched for all hunks of all files of one patch: half a second at most. `str.find` takes linear
time for any text, but thousands of hunks that are not at their stated lines would each search the file."""
MAX_PLACES = 5
"""Places that are named if a hunk fits at several."""
MAX_SHOWN = 200
"""Characters of a line that a message repeats."""
_SMALL = 64
_BLOCK = 32 * 1024


class PatchRejected(Exception):
    """The diff is malformed or does not fit; the message names file, hunk and what was expected."""


class Hunk(FrozenModel):
    """One place. Lines keep their marker and their line end."""

    start: int
    """First line of the old text, 1-based; 0 for a new file."""
    old: tuple[str, ...]
    new: tuple[str, ...]


def split_lines(text: str) -> list[str]:
    """The lines as diff, git and editors count them: only a newline ends one, where `splitlines` knows ten more ends."""
    *lines, rest = text.split("\n")
    whole = [line + "\n" for line in lines]
    return [*whole, rest] if rest else whole


def skip_lines(text: str, at: int, count: int) -> int | None:
    """The position `count` lines after `at`, which begins a line; None if there are fewer. No line is copied."""
    block = _BLOCK
    while count > _SMALL:
        end = min(at + block, len(text))
        if at == end:
            return None
        found = text.count("\n", at, end)
        if found < count:
            count -= found
            at = end
        elif block <= _SMALL:
            break
        else:
            block //= 8
    for number in range(count):
        end = text.find("\n", at) + 1
        if not end:
            return len(text) if at < len(text) and number == count - 1 else None
        at = end
    return at


class _Place:
    """How far a file's hunks have been applied, and what may still be searched."""

    def __init__(self, text: str, budget: WorkBudget) -> None:
        self.text = text
        self.budget = budget
        self.at = 0
        """Where the rest begins."""
        self.line = 0
        """Lines before that."""

    def after(self, lines: int) -> int | None:
        """The position after that many lines of the file; None if it is outside of the rest."""
        if lines < self.line:
            return None
        found = skip_lines(self.text, self.at, lines - self.line)
        self.budget.spend(_SMALL + (len(self.text) if found is None else found) - self.at)
        return found

    def find(self, old: str, start: int) -> int | None:
        """The next place from `start` on where these lines are; a last one without a newline ends the file."""
        text = self.text
        if (start == self.at or text[start - 1] == "\n") and self.fits(old, start):
            return start
        if not old.endswith("\n"):
            last = len(text) - len(old)
            return last if last > start and text[last - 1] == "\n" and self.fits(old, last) else None
        found = text.find("\n" + old, start) + 1
        self.budget.spend(len(old) + (found or len(text)) - start)
        return found or None

    def fits(self, old: str, at: int) -> bool:
        """Whether the lines are there."""
        self.budget.spend(len(old))
        return self.text.startswith(old, at) and (old.endswith("\n") or at + len(old) == len(self.text))


def apply_hunks(hunks: tuple[Hunk, ...], text: str, path: str, budget: WorkBudget, *, deletes: bool = False) -> str:
    """The text after the hunks; `path` is for messages.

    Deletes: the file goes, so the hunks must cover all of it.

    Raises:
        PatchRejected: a hunk does not fit, fits in several places away from its stated line, or the budget is spent.
    """
    place = _Place(text, budget)
    done: list[str] = []
    for number, hunk in enumerate(hunks, start=1):
        found, line = _locate(place, hunk, f"{path}, hunk {number}")
        done.append(text[place.at : found])
        done += hunk.new
        place.line = line + len(hunk.old)
        place.at = found + sum(map(len, hunk.old))
    if deletes and (place.at < len(text) or any(done)):
        raise PatchRejected(f"{path}: the diff deletes the file but does not cover all of it.")
    return "".join([*done, text[place.at :]])


def _locate(place: _Place, hunk: Hunk, where: str) -> tuple[int, int]:
    """Where the hunk begins, and how many lines are before it."""
    # The header of a pure insertion has the line after which it goes.
    above = hunk.start - 1 if hunk.old else hunk.start
    stated = place.after(above)
    if not hunk.old:
        if stated is None:
            lines = len(split_lines(place.text))
            raise PatchRejected(f"{where}: line {hunk.start} is outside the file ({lines} lines).")
        return stated, above
    old = "".join(hunk.old)
    # A line without its newline can only be the last; an empty one is none.
    if all(line.endswith("\n") for line in hunk.old[:-1]) and hunk.old[-1]:
        if stated is not None and place.fits(old, stated):
            return stated, above
        places = _search(place, old, hunk, where)
        numbers = [place.text.count("\n", 0, found) + 1 for found in places]
        if len(places) == 1:
            return places[0], numbers[0] - 1
        if places:
            raise PatchRejected(
                f"{where}: its context fits at lines {numbers}; add context or correct the line number."
            )
    raise PatchRejected(f"{where}: {_first_mismatch(place.text, hunk)}.")


def _search(place: _Place, old: str, hunk: Hunk, where: str) -> list[int]:
    """The first places where the lines are."""
    found: list[int] = []
    start = place.at
    while len(found) < MAX_PLACES and (next_one := place.find(old, start)) is not None:
        found.append(next_one)
        start = next_one + 1
    if place.budget.left < 0:
        raise PatchRejected(
            f"{where}: it is not at line {hunk.start}, and looking for the places of so many lines takes too long."
            " Correct the line numbers, or send a smaller patch."
        )
    return found


def _first_mismatch(text: str, hunk: Hunk) -> str:
    """The first line that is not as the hunk says, where the hunk says that it is."""
    first = max(hunk.start - 1, 0)
    at = skip_lines(text, 0, first)
    at = len(text) if at is None else at
    for number, wanted in enumerate(hunk.old, start=first):
        end = text.find("\n", at) + 1 or len(text)
        found, at = text[at:end], end
        if found != wanted:
            same = found.rstrip() == wanted.rstrip()  # only the ends differ: CRLF, blanks, no newline at the file's end
            want, have = (wanted, found) if same else (wanted.rstrip(), found.rstrip())
            shown = _shown(have) if found else "(end of file)"
            return f"expected {_shown(want)} at line {number + 1}, found {shown}"
    return f"its context is above line {first + 1}, where an earlier hunk ends"


def _shown(line: str) -> str:
    cut = len(line) - MAX_SHOWN
    return repr(line) if cut <= 0 else f"{line[:MAX_SHOWN]!r}… ({cut} characters more)"
