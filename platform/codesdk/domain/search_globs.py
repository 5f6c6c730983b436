"""The patterns of a search's `glob`, as the search runs them and as policy reads them. Pure."""

from __future__ import annotations

_WILDCARDS = frozenset("*?[{")


def search_globs(glob: str) -> tuple[str, ...]:
    """The patterns, each as ripgrep takes it: `*.ts,*.tsx` are two, and a directory's name stands for what it holds."""
    return tuple(pattern for part in _split(glob) for pattern in _patterns(part.strip()))


def is_exclusion(pattern: str) -> bool:
    """Whether the pattern says what to leave out."""
    return pattern.startswith("!")


def _patterns(part: str) -> tuple[str, ...]:
    sign, path = ("!", part[1:]) if is_exclusion(part) else ("", part)
    while path.startswith("./"):
        path = path[2:]
    if not path or path == ".":
        return ()
    if path.endswith("/"):
        return (f"{sign}{path}**",)
    is_directory = not set(path) & _WILDCARDS and "." not in path.rpartition("/")[2].lstrip(".")
    return (sign + path, f"{sign}{path}/**") if is_directory else (sign + path,)


def _split(glob: str) -> list[str]:
    """Parts between commas that are in no braces or brackets."""
    parts, depth = [""], 0
    for letter in glob:
        depth = max(0, depth + (letter in "{[") - (letter in "}]"))
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
