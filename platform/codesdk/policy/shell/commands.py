"""What policy can see of a command: simple commands in two views, and why one of them may be closed."""

from __future__ import annotations

from dataclasses import dataclass

from codesdk.policy.shell.words import Word

MAX_BYTES = 64 * 1024
MAX_COMMANDS = 200
MAX_NESTING = 8
"""Scripts inside scripts: `sh -c 'sh -c …'`."""


class SimpleCommand:
    """One command word with its arguments; not changed once made."""

    __slots__ = ("assignments", "name", "words")

    def __init__(self, words: tuple[Word, ...], assignments: tuple[tuple[str, Word], ...] = ()) -> None:
        self.words = words
        """The command word first, as written."""
        self.assignments = assignments
        """`NAME=value` in front of it."""
        first = words[0] if words else None
        known = first is not None and first.literal and not first.glob
        self.name = first.text.rsplit("/", 1)[-1] if first is not None and known else ""
        """The command word without its directories; empty where only a running shell would know it."""


@dataclass(frozen=True, slots=True)
class ShellViews:
    """One command, seen twice."""

    allow_view: tuple[SimpleCommand, ...] | None
    """The allow view: exactly what runs, in literal words. None where the command says more than that."""
    refusal: str
    """Why the allow view is closed."""
    seen: tuple[SimpleCommand, ...]
    """The ask/deny view: every command anywhere in it, wrappers and what they wrap, scripts inside arguments."""
    opaque: str
    """Why `seen` may be incomplete, so that no rule can allow the command; empty where it is complete."""
