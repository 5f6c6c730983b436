"""Simple commands, and the allow and ask-deny views of a command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from codesdk.policy.shell.words import Word

MAX_BYTES = 64 * 1024
MAX_COMMANDS = 200
MAX_WORDS = 40_000
"""Words of all commands of a line together: nested ones repeat those of the commands around them."""
MAX_NESTING = 8
"""Levels of scripts inside scripts: `sh -c 'sh -c …'`."""
MAX_GUESSES = 2000
"""Words of an unreadable text that are tried as commands."""


MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a rule must permit of a command of the allow view in addition to its words."""

    writes: tuple[str | None, ...] = ()
    """Files that its redirections write, as written; None for one that is only known at run time."""
    background: bool = False
    """Runs in the background, through `&`."""
    inputs: Word | None = None
    """For `xargs`: what each of its inputs starts with, if that is known."""
    whole: SimpleCommand | None = None
    """The command that this is a part of. A rule that covers it as a whole covers this part."""


PLAIN_RUN = RunContext()


class SimpleCommand:
    """A command word with its arguments. Immutable by convention."""

    __slots__ = ("assignments", "context", "name", "words")

    def __init__(
        self,
        words: tuple[Word, ...],
        assignments: tuple[tuple[str, Word], ...] = (),
        context: RunContext = PLAIN_RUN,
    ) -> None:
        self.words = words
        """The command word and its arguments, as written."""
        self.assignments = assignments
        """The `NAME=value` pairs in front of the command."""
        self.context = context
        first = words[0] if words else None
        known = first is not None and first.literal and not first.glob
        self.name = first.text.rsplit("/", 1)[-1] if first is not None and known else ""
        """The command word without its directories; empty if it is only known at run time."""

    @property
    def shown(self) -> str:
        """The command for people, at most MAX_SHOWN characters; `…` stands for what is only known at run time."""
        text = " ".join(word.text + "…" * word.dynamic for word in self.words).replace("`", "'")
        return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


@dataclass(frozen=True, slots=True)
class ShellViews:
    """The two views of one command."""

    allow_view: tuple[SimpleCommand, ...] | None
    """The allow view: exactly the commands that run, in known words. None if the command does anything else."""
    refusal: str
    """Why there is no allow view."""
    seen: tuple[SimpleCommand, ...]
    """The ask-deny view: every command that might run, including nested commands and scripts in arguments."""
    opaque: str
    """Why `seen` may be incomplete, in which case no rule can allow the command; empty if it is complete."""
    guessed: tuple[SimpleCommand, ...] = ()
    """For a text that can't be parsed reliably: every word of it as the name of a command."""
    over_limit: bool = False
    """A limit on size or nesting was exceeded, so that some commands are in neither `seen` nor `guessed`."""
    redirections: tuple[Word, ...] = ()
    """Files that redirections may read or write."""
    values: tuple[tuple[str, Word], ...] = ()
    """Values that variables may get, by variable; without one, elements of arrays and here-strings."""
    inputs: tuple[str, ...] = ()
    """Texts that commands may read: here-documents and the call's standard input."""
    moves_in_loop: bool = False
    """A loop of the allow view changes the directory, so that where its commands run is not known."""

    @property
    def possible(self) -> Iterator[SimpleCommand]:
        """Every command that a rule that asks or denies must consider."""
        return chain(self.seen, self.guessed)
