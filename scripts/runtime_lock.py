"""Print the part of requirements.lock that some packages need, with hashes: `runtime_lock.py LOCK ROOT… [-NAME…]`.

The lock covers tests and tools too; an image needs only what runs. The lock records who requires each package (`#
via`), so there is no second lock that could drift from it. `-NAME` leaves a package out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PROJECT = "codesdk (pyproject.toml)"
"""The requirer that the lock names for the package's own requirements; a dependency group follows after a colon."""


def entries(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> (its lines, the packages that require it)."""
    found = {}
    for block in re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.MULTILINE):
        if not block.strip() or block.startswith("#"):
            continue
        name = re.split(r"[=\[ ]", block, maxsplit=1)[0]
        lines, _, asked = block.partition("    # via")
        found[name] = (lines, frozenset(line.strip("# ").strip() for line in asked.splitlines() if line.strip("# ")))
    return found


def needed(known: dict[str, tuple[str, frozenset[str]]], roots: set[str], without: set[str]) -> list[str]:
    """Return the roots that are packages, and their dependencies, in the lock's order."""
    wanted = set(roots)
    while more := {n for n, (_, asked) in known.items() if n not in wanted | without and wanted & asked}:
        wanted |= more
    return [name for name in known if name in wanted]


def main() -> None:
    """Write the part to stdout."""
    lock, *names = sys.argv[1:]
    known = entries(Path(lock).read_text(encoding="utf-8"))
    roots = {name for name in names if not name.startswith("-")} or {PROJECT}
    without = {name.removeprefix("-") for name in names if name.startswith("-")}
    if unknown := (roots | without) - {*known, PROJECT}:
        sys.exit(f"error: {lock} does not have {', '.join(sorted(unknown))}")
    for name in needed(known, roots, without):
        sys.stdout.write(known[name][0])


if __name__ == "__main__":
    main()
