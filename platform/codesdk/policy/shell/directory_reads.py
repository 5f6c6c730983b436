"""Commands that read a directory with all beneath it, and whether they read hidden files there.

A command that only lists names (`ls -R`, `find`) reads nothing, unless another command of the line takes its arguments
from elsewhere: `find . -type f | xargs cat`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.patterns import Fit, has_flag
from codesdk.policy.shell.words import Word

_GREPS = ("grep", "egrep", "fgrep", "zgrep", "ggrep")
_HERE = Word(".")
_RG_VALUES = "ABCEMTdefgjmrt"
"""Short options of rg that take the rest of their cluster as the value."""
_SEARCH_VALUES = {**dict.fromkeys(_GREPS, "mABCdD"), "rgrep": "mABCdD", "rg": _RG_VALUES}
"""Short options with a value, of the searches whose first operand is certainly no path."""
_BARE = frozenset(
    [
        *("--hidden", "--no-ignore", "--ignore-case", "--smart-case", "--line-number", "--count", "--invert-match"),
        *(
            "--files-with-matches",
            "--files-without-match",
            "--word-regexp",
            "--line-regexp",
            "--only-matching",
            "--column",
        ),
        *("--recursive", "--dereference-recursive", "--extended-regexp", "--perl-regexp", "--quiet", "--no-messages"),
        *(
            "--no-heading",
            "--with-filename",
            "--no-filename",
            "--multiline",
            "--text",
            "--json",
            "--unrestricted",
            "--cached",
        ),
    ]
)
"""Long options of searches without a value."""


_PATTERN_OPTION = re.compile(r"--(?:rege?x?p?|file)")
"""Options whose value is the next word."""


@dataclass(frozen=True, slots=True)
class DirectoryRead:
    """A directory that a command may read with all beneath it."""

    directory: Word
    hidden: bool
    """Hidden files are read as well."""
    only: tuple[str, ...] = ()
    """Patterns of the files that are read; empty for all."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """How a command reads directories."""

    when: tuple[str, ...] = ()
    """Options of which one is needed; empty if it always does."""
    hidden: tuple[str, ...] = ()
    """Options of which one is needed to read hidden files; empty if it always does."""
    only: tuple[str, ...] = ()
    """Options whose value restricts the files by name."""
    writes_last: bool = False
    """The last operand is where it writes."""
    here: bool = False
    """Without an operand it reads the current directory."""
    lists: bool = False
    """It only lists names."""


_READERS = {
    **dict.fromkeys(_GREPS, _Reader(("-r", "--recursive", "--dereference-recursive"), only=("--include",), here=True)),
    "rgrep": _Reader(only=("--include",), here=True),
    "rg": _Reader(hidden=("-.", "--hidden", "-u", "--unrestricted", "--no-ignore"), only=("-g", "--glob", "--iglob"), here=True),
    "ag": _Reader(hidden=("-u", "--unrestricted", "--hidden"), here=True),
    "ack": _Reader(here=True),
    "tar": _Reader(), "bsdtar": _Reader(),
    "cp": _Reader(("-r", "--recursive", "-a", "--archive"), writes_last=True),
    "scp": _Reader(("-r",), writes_last=True),
    "rsync": _Reader(writes_last=True),
    "zip": _Reader(("-r", "--recurse-paths")),
    "7z": _Reader(), "7za": _Reader(), "7zr": _Reader(),
    "diff": _Reader(("-r", "--recursive")),
    "rm": _Reader(("-r", "--recursive")),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _Reader(("-R", "--recursive"))),
    "find": _Reader(lists=True, here=True), "gfind": _Reader(lists=True, here=True),
    **dict.fromkeys(("fd", "fdfind"), _Reader(hidden=("-H", "--hidden", "-u", "--unrestricted"), lists=True, here=True)),
    "ls": _Reader(hidden=("-a", "--all", "-A", "--almost-all", "-f"), lists=True, here=True),
    "tree": _Reader(hidden=("-a",), lists=True, here=True),
    "du": _Reader(when=("-a", "--all"), lists=True, here=True),
}  # fmt: skip
_FIND_NAMES = ("-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename")


def directory_reads(command: SimpleCommand, *, names_are_used: bool) -> Iterator[DirectoryRead]:
    """Yield what the command may read.

    `names_are_used`: another command of the line takes arguments that are only known when it runs.
    """
    reader = _READERS.get(command.name)
    arguments = command.words[1:]
    if command.name == "git" and any(word.text.startswith("--no-ind") for word in arguments):
        paths = [word for word in arguments if not word.text.startswith("-")]
        yield from (DirectoryRead(directory, hidden=True) for directory in (*paths, _HERE))
    if reader is None or (reader.lists and not (names_are_used or _deletes(command))):
        return
    recurses = command.name in _GREPS and _recurses(arguments)
    if reader.when and not recurses and not any(_has(command.name, arguments, option) for option in reader.when):
        return
    if command.name in ("tar", "bsdtar") and not _creates(arguments):
        return
    only = _find_names(arguments) if command.name in ("find", "gfind") else _values(arguments, reader.only)
    # With a pattern of file names, rg reads the hidden files that match it.
    hidden = not reader.hidden or any(_has(command.name, arguments, option) for option in reader.hidden)
    hidden = hidden or (command.name == "rg" and bool(only))
    pattern = pattern_argument(command)
    operands = [word for at, word in _operands(command) if at != pattern]
    if reader.writes_last and not has_flag(arguments, "-t") and not has_flag(arguments, "--target-directory"):
        operands = operands[:-1]
    # Without a word that is certainly the pattern, the only operand may be the pattern.
    unclear = (
        pattern is None
        and command.name in _SEARCH_VALUES
        and not any(_gives_pattern(word, _SEARCH_VALUES[command.name]) for word in arguments)
    )
    if reader.here and (unclear or not operands):
        operands.append(_HERE)
    for directory in operands:
        yield DirectoryRead(directory, hidden, only)


def pattern_argument(command: SimpleCommand) -> int | None:
    """Return the index of the word that is the pattern of a search; None if that is not certain."""
    values = _SEARCH_VALUES.get(command.name)
    start = 1
    if command.name == "git":
        start = next((at for at, word in enumerate(command.words, 1) if word.text == "grep"), len(command.words))
        values = _SEARCH_VALUES["grep"]
    if values is None:
        return None
    for at, word in _without_values(command.words, start, values):
        if not word.literal or word.may_be_option or _gives_pattern(word, values):
            return None
        if not word.text.startswith("-"):
            later = any(_gives_pattern(other, values) for other in command.words[at + 1 :])
            return None if word.glob or later else at
        if word.text.startswith("--") and "=" not in word.text and word.text not in _BARE:
            return None
    return None


def _without_values(words: Sequence[Word], start: int, valued: str) -> Iterator[tuple[int, Word]]:
    """Yield the words from `start` on, without those that are the value of a short option, and their indexes."""
    skip = False
    for at, word in enumerate(words[start:], start):
        if not skip:
            yield at, word
        short = word.text.startswith("-") and not word.text.startswith("--") and not skip
        # The first letter with a value takes the rest of the cluster.
        option = next((at for at, letter in enumerate(word.text) if letter in valued), -1) if short else -1
        skip = option > 0 and option == len(word.text) - 1


def _gives_pattern(word: Word, valued: str) -> bool:
    """Return whether the option leaves every operand to be a path: `-e`, `-f`, `--regexp`, `--file`, `--files`."""
    text = word.text
    if text.startswith("--") or not text.startswith("-"):
        return text.startswith(("--reg", "--f"))
    return next((letter for letter in text[1:] if letter in f"{valued}ef"), "") in ("e", "f")


def _has(name: str, arguments: Sequence[Word], option: str) -> bool:
    if name != "rg" or option.startswith("--"):
        return has_flag(arguments, option) is Fit.YES or any(
            word.text.startswith(option) for word in arguments if option == "--no-ignore"
        )
    for word in arguments:
        if word.text.startswith("-") and not word.text.startswith("--"):
            for letter in word.text[1:]:
                if letter == option[1]:
                    return True
                if letter in _RG_VALUES:
                    break
    return False


def _recurses(arguments: Sequence[Word]) -> bool:
    """Return whether grep's `-d` or `--directories` says `recurse`."""
    for at, word in enumerate(arguments):
        text = word.text
        if text.startswith("--di"):
            value = text.partition("=")[2]
        elif text.startswith("-") and not text.startswith("--") and "d" in text:
            value = text.partition("d")[2]
        else:
            continue
        following = arguments[at + 1] if at + 1 < len(arguments) else _HERE
        if (
            word.dynamic
            or value.startswith("rec")
            or (not value and (following.dynamic or following.text[:3] == "rec"))
        ):
            return True
    return False


def _creates(arguments: Sequence[Word]) -> bool:
    """Return whether tar reads files: it creates or extends an archive."""
    first = arguments[0].text if arguments else ""
    if not first.startswith("-") and set(first) & set("cru"):
        return True
    return any(
        has_flag(arguments, option) is Fit.YES for option in ("-c", "-r", "-u", "--create", "--append", "--update")
    )


def _deletes(command: SimpleCommand) -> bool:
    return command.name in ("find", "gfind") and any(word.text == "-delete" for word in command.words)


def _operands(command: SimpleCommand) -> Iterator[tuple[int, Word]]:
    """Yield the operands with their indexes; of find, only the directories."""
    ended = False
    search = command.name in _SEARCH_VALUES
    valued = _SEARCH_VALUES[command.name] + "ef" if search else ""
    for at, word in _without_values(command.words, 1, valued):
        if search and not ended and _PATTERN_OPTION.fullmatch(command.words[at - 1].text):
            continue
        if word.text == "--" and word.literal:
            ended = True
        elif command.name in ("find", "gfind") and (word.text.startswith("-") or word.text in ("!", "(")):
            if word.text not in ("-H", "-L", "-P"):
                return
        elif ended or not word.text.startswith("-"):
            yield at, word


def _values(arguments: Sequence[Word], options: Sequence[str]) -> tuple[str, ...]:
    """Return the values of these options that are not negated."""
    found: list[str] = []
    for at, word in enumerate(arguments):
        name, equals, value = word.text.partition("=")
        if name in options and name.startswith("-"):
            found.append(value if equals else arguments[at + 1].text if at + 1 < len(arguments) else "")
        elif word.text[:2] in options and not word.text.startswith("--"):
            found.append(word.text[2:].removeprefix("="))
    return tuple(value for value in found if not value.startswith("!"))


def _find_names(arguments: Sequence[Word]) -> tuple[str, ...]:
    """Return the name patterns that find requires; none if they are not all that it lists (`-o`)."""
    if any(word.text in ("-o", "-or", ",") for word in arguments):
        return ()
    return tuple(
        arguments[at + 1].text
        for at, word in enumerate(arguments[:-1])
        if word.text in _FIND_NAMES and (at == 0 or arguments[at - 1].text not in ("!", "-not"))
    )
