"""Lists directories: level by level, a page at a time."""

from __future__ import annotations

import os
import stat

from codesdk.sandbox.runner.workspace.files import describe
from codesdk.sandbox.runner.workspace.root import Root, relative

MAX_DEPTH = 32
MAX_SCANNED = 50_000
"""Maximum entries that a listing scans before it reports `truncated`; bounds memory."""
MAX_OF_ONE = 10_000
"""Entries of one directory below the listed one, so that a large one leaves room for the others of its level."""
MAX_ALTERNATIVES = 64
"""Patterns that the braces of one name stand for."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from codesdk.sandbox.runner.workspace.files import Info

    Found = list[tuple[str, os.stat_result]]


class Page:
    """The entries of a page, how many were found in all, and whether a directory has more than were scanned."""

    def __init__(self, entries: list[Info], total: int, unscanned: bool) -> None:
        self.entries = entries
        self.total = total
        self.unscanned = unscanned


class _Trail:
    """The open directories on the way from the listed one to the one that is scanned. Follows no symlinks."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._names: list[str] = []
        self._open: list[int] = []

    def enter(self, names: list[str]) -> int:
        """Open a directory by its names below the listed one. The next one of the same level mostly shares its way."""
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        self.leave(shared)
        for name in names[shared:]:
            self._open.append(os.open(name, _DIRECTORY, dir_fd=self._open[-1] if self._open else self._top))
            self._names.append(name)
        return self._open[-1]

    def leave(self, count: int = 0) -> None:
        """Close all but the first `count` directories."""
        while len(self._open) > count:
            os.close(self._open.pop())
            self._names.pop()


def list_entries(root: Root, path: str, depth: int, limit: int, offset: int, glob: str) -> Page:
    """List entries below a directory, level by level, each level sorted by path. Follows no symlinks."""
    clean = relative(path, root.workspace)
    prefix = "" if clean == "." else clean + "/"
    top = root.open(clean, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK)
    try:
        found, unscanned = _scan_levels(top, min(depth, MAX_DEPTH))
    finally:
        os.close(top)
    if glob:
        found = [entry for entry in found if matches_glob(entry[0], glob)]
    page = [describe(prefix + name, about) for name, about in found[offset : offset + limit]]
    return Page(page, len(found), unscanned)


def _scan_levels(top: int, depth: int) -> tuple[Found, bool]:
    found: Found = []
    level: Found = []
    unscanned = _scan(top, "", MAX_SCANNED, level)
    trail = _Trail(top)
    try:
        for _ in range(depth - 1):
            level.sort(key=_by_path)
            found += level
            above, level = level, []
            for name, about in above:
                if stat.S_ISDIR(about.st_mode):
                    room = min(MAX_OF_ONE, MAX_SCANNED - len(found) - len(level))
                    try:
                        unscanned = _scan(trail.enter(name.split("/")), name + "/", room, level) or unscanned
                    except OSError:
                        continue  # deleted, replaced, or one that the tool user can't read: listed, not entered
    finally:
        trail.leave()
    level.sort(key=_by_path)
    return found + level, unscanned


def _scan(fd: int, prefix: str, room: int, found: Found) -> bool:
    """Add a directory's entries; returns whether it has more than there is room for."""
    count = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            if count >= room:
                return True
            try:
                found.append((prefix + entry.name, entry.stat(follow_symlinks=False)))
                count += 1
            except OSError:
                continue  # deleted meanwhile
    return False


def _by_path(entry: tuple[str, os.stat_result]) -> str:
    return entry[0]


def matches_glob(path: str, glob: str) -> bool:
    """Match a path as `.gitignore` does: a pattern without a slash matches the last name, another the whole path."""
    if "/" not in glob:
        return _matches_name(path.rpartition("/")[2], glob)
    return _matches_parts(path.split("/"), [part for part in glob.split("/") if part])


def _matches_parts(parts: list[str], wanted: list[str]) -> bool:
    reached = {0}  # counts of wanted parts that the path so far can have matched
    for part in parts:
        following = set()
        for count in _past_stars(reached, wanted):
            if count < len(wanted):
                if wanted[count] == "**":
                    following.add(count)
                elif _matches_name(part, wanted[count]):
                    following.add(count + 1)
        reached = following
    return len(wanted) in _past_stars(reached, wanted)


def _past_stars(reached: set[int], wanted: list[str]) -> set[int]:
    every = set(reached)
    for count in range(len(wanted)):
        if count in every and wanted[count] == "**":
            every.add(count + 1)
    return every


def _matches_name(name: str, glob: str) -> bool:
    """Match one name with `*`, `?`, `[a-z]` and `{a,b}`."""
    return any(_matches_plain(name, one) for one in _alternatives(glob))


def _alternatives(glob: str) -> list[str]:
    """Expand the innermost braces first; past the bound they stand for themselves."""
    done: list[str] = []
    pending = [glob]
    while pending:
        one = pending.pop()
        start = one.rfind("{", 0, one.find("}") + 1)
        end = one.find("}", start)
        if start < 0 or end < 0 or len(pending) + len(done) > MAX_ALTERNATIVES:
            done.append(one)
        else:
            pending += [one[:start] + part + one[end + 1 :] for part in one[start + 1 : end].split(",")]
    return done


def _matches_plain(name: str, glob: str) -> bool:
    at = place = after_star = 0
    star = -1
    while at < len(name):
        if glob[place : place + 1] == "*":
            star = place = place + 1
            after_star = at
            continue
        size = _matched_length(glob, place, name[at])
        if size:
            at, place = at + 1, place + size
        elif star >= 0:
            after_star += 1
            at, place = after_star, star
        else:
            return False
    return not glob[place:].strip("*")


def _matched_length(glob: str, place: int, letter: str) -> int:
    """Return the length of what stands at a place of the pattern and matches the letter; 0 if it doesn't."""
    end = glob.find("]", place + 2) if glob[place : place + 1] == "[" else -1
    if end < 0:
        return 1 if glob[place : place + 1] in ("?", letter) else 0
    chosen = glob[place + 1 : end]
    negated = chosen[0] in "!^" and len(chosen) > 1
    chosen = chosen[1:] if negated else chosen
    found = False
    while chosen:
        last = chosen[2] if chosen[1:2] == "-" and len(chosen) > 2 else chosen[0]  # noqa: PLR2004 - `a-z`
        found = found or chosen[0] <= letter <= last
        chosen = chosen[3 if last is not chosen[0] else 1 :]
    return end + 1 - place if found != negated else 0
