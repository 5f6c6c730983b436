"""Checks for unsafe arguments of commands whose arguments are programs, so that a list of options is not enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell import awk, sed
from codesdk.policy.shell.conditional_expressions import evaluated_words
from codesdk.policy.shell.nested_command_wrappers import AWKS, EVALUATORS
from codesdk.policy.shell.options import WordIndexes
from codesdk.policy.shell.words import Word


@dataclass(frozen=True, slots=True)
class Check:
    """Reads the arguments of one command."""

    find: Callable[[Sequence[Word]], WordIndexes]
    excludes: str
    """What it flags, for people."""
    reads_values: bool = False
    """The check handles unknown values itself. Otherwise any variable is unsafe, because it may be any argument."""


_ABSOLUTE = re.compile(r"(^|=)(/(?!dev/null$|tmp/|workspace/)|~)|(^|[=/])\.\.(/|$)")


def find(words: Sequence[Word]) -> WordIndexes:
    """Flag tests that run, write or delete, and words that could become an option."""
    acting = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
    yield from (index for index, word in enumerate(words) if word.text in acting or (index and word.may_be_option))


def sed_script(words: Sequence[Word]) -> WordIndexes:  # noqa: C901 (a branch for each way to give a script)
    """Flag scripts that are not plainly text edits, `-i`, `-f`, and unknown options."""
    scripts: list[tuple[int, str]] = []
    operands: list[int] = []
    index = 1
    while index < len(words):
        text = words[index].text
        if words[index].may_be_option:
            yield index
        if text in ("--expression", "-e") or (re.fullmatch(r"-[nErsuz]*e", text)):
            index += 1
            if index < len(words):
                scripts.append((index, words[index].text))
        elif text.startswith("--expression="):
            scripts.append((index, text.partition("=")[2]))
        elif match := re.match(r"-[nErsuz]*e", text):
            scripts.append((index, text[match.end() :]))
        elif text.startswith("-") and len(text) > 1:
            known = (
                "--quiet",
                "--silent",
                "--regexp-extended",
                "--separate",
                "--unbuffered",
                "--null-data",
                "--posix",
                "--debug",
                "--sandbox",
                "--",
            )
            # A bare `-l` takes a value in GNU sed and none in BSD sed, so the script's position is uncertain.
            if text not in known and not re.fullmatch(r"-[nErsuz]+|-l[0-9]+|--line-length=[0-9]+", text):
                yield index
        else:
            operands.append(index)
        index += 1
    if not scripts and operands:
        scripts = [(operands[0], words[operands[0]].text)]
    whole = "\n".join(text for _, text in scripts)
    # A glob in the script may expand to a file name and change the script; so may a variable.
    if scripts and (any(words[at].glob or words[at].dynamic for at, _ in scripts) or not sed.edits_only(whole)):
        yield scripts[0][0]


def awk_program(words: Sequence[Word]) -> WordIndexes:
    """Flag every option except `-F`, `-v` and harmless switches, and programs that may do more than read and print."""
    index = 1
    while index < len(words):
        text = words[index].text
        if words[index].may_be_option:
            yield index
        if text in ("-F", "-v", "--field-separator", "--assign"):
            index += 2
            continue
        if text == "--":
            index += 1
            break
        if not text.startswith("-") or text == "-":
            break
        if not re.fullmatch(
            r"-F.+|-v\w+=.*|--(field-separator|assign)=.*|--(posix|traditional|re-interval|sandbox|csv|bignum)|-[PcrSkM]",
            text,
            re.DOTALL,
        ):
            yield index
        index += 1
    if index < len(words) and (words[index].glob or words[index].dynamic or not awk.is_read_only(words[index].text)):
        yield index
    # gawk opens connections through these names.
    yield from (at for at, word in enumerate(words) if at > index and word.text.startswith("/inet"))
    # BusyBox also accepts options after the program.
    options = (at for at, word in enumerate(words) if word.may_be_option or (word.text[:1] == "-" and word.text != "-"))
    yield from (at for at in options if at > index)


_TAR_VALUES = frozenset("fCbTXVNHKLIgF")
_TAR_WRITES = re.compile(r"--(create|append|update|extract|get|catenate|concatenate)$")


def tar(words: Sequence[Word]) -> WordIndexes:
    """Flag remote archives (`host:file` starts rsh), writes outside the workspace, and options that run programs."""
    if len(words) > 1 and words[1].glob:
        yield 1  # its letters select the operation
    options = list(_tar_options(words))
    writes = any(option in "crux" or _TAR_WRITES.match(option) for _, option, _ in options)
    for at, option, value in options:
        names_path = option in ("f", "C", "--file", "--directory")
        remote = option in ("f", "--file") and ":" in value and not value.startswith(("./", "/"))
        outside = writes and names_path and _ABSOLUTE.search(value) is not None
        if remote or outside or option in ("I", "F", "g"):
            yield at


def _tar_options(words: Sequence[Word]) -> Iterator[tuple[int, str, str]]:
    """Yield the index, name and value of each option.

    The index is the value's if that is a separate word. The first word may be a cluster without a dash (`tar cf x`); its
    values are the words that follow.
    """
    index = 1
    while index < len(words):
        at, text = index, words[index].text
        index += 1
        following = words[index].text if index < len(words) else ""
        if text.startswith("--"):
            name, equals, value = text.partition("=")
            apart = not equals and name in ("--file", "--directory")
            yield index if apart else at, name, value if equals else following
            index += apart
        elif text.startswith("-") or at == 1:
            cluster = text.removeprefix("-")
            for place, letter in enumerate(cluster):
                rest = cluster[place + 1 :] if letter in _TAR_VALUES and text.startswith("-") else ""
                apart = letter in _TAR_VALUES and not rest and index < len(words)
                yield index if apart else at, letter, rest or following
                if rest:
                    break
                if letter in _TAR_VALUES:
                    index += 1
                    following = words[index].text if index < len(words) else ""


_GIT_SAFE_GLOBALS = (
    "--no-pager",
    "-P",
    "--no-optional-locks",
    "--literal-pathspecs",
    "--no-replace-objects",
    "--version",
)
_GIT_PAIRS = {"bisect": "run", "submodule": "foreach", "rebase": "--interactive", "help": "--web"}
_GIT_TRANSPORTS = ("ext::", "fd::")
_GIT_LOCAL = frozenset(
    [
        *(
            "add",
            "blame",
            "cat-file",
            "check-ignore",
            "describe",
            "diff",
            "diff-tree",
            "grep",
            "log",
            "ls-files",
            "ls-tree",
        ),
        *("merge-base", "name-rev", "rev-list", "rev-parse", "shortlog", "show", "status", "whatchanged"),
    ]
)
"""Subcommands that read revisions and files of the repository only, whatever their operands are."""


def git(words: Sequence[Word]) -> WordIndexes:
    """Flag global options except harmless ones, and arguments that make some subcommands run programs."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text not in _GIT_SAFE_GLOBALS:
            yield at
        at += 1
    if at >= len(words):
        return
    subcommand = words[at].text
    if words[at].glob or words[at].dynamic:
        yield at
    pair = _GIT_PAIRS.get(subcommand)
    for index, word in enumerate(words[at + 1 :], at + 1):
        if word.text.startswith(_GIT_TRANSPORTS) or word.text == pair:
            yield index
        elif word.dynamic and subcommand not in _GIT_LOCAL:
            yield index  # it may name a transport that runs something, or a subcommand of the subcommand


def date(words: Sequence[Word]) -> WordIndexes:
    """Flag operands that set the clock (`date 01020304`). `date +%s` and option values are harmless."""
    index = 1
    while index < len(words):
        text = words[index].text
        if text in ("-d", "-f", "-r", "--date", "--file", "--reference"):
            index += 1  # skip the value, even if it looks like an option
        elif not text.startswith(("-", "+")) or words[index].may_be_option:
            yield index
        index += 1


def command_query(words: Sequence[Word]) -> WordIndexes:
    """Flag every use of `command` except `command -v` and `command -V`, which only look a command up."""
    if len(words) < 2 or not words[1].literal or words[1].text not in ("-v", "-V"):  # noqa: PLR2004 (its name and an option)
        yield from range(1, len(words)) if len(words) > 1 else (0,)


_ASSIGNS = re.compile(r"(?<!%)(%%)*%[-+ #'0-9.*hjlLqtz]*n")
"""Matches `%n`. bash skips flags and length modifiers before the `n`."""


def printf(words: Sequence[Word]) -> WordIndexes:
    """Flag `-v`, which assigns a variable and evaluates its subscript, and `%n`, which also assigns."""
    at = 2 if len(words) > 1 and words[1].text == "--" else 1
    if len(words) > at and (
        words[at].may_be_option
        or words[at].dynamic
        or words[at].text.startswith("-v")
        or _ASSIGNS.search(words[at].text)
    ):
        yield at


def subscripts(words: Sequence[Word]) -> WordIndexes:
    """Flag words that may evaluate a subscript: `test -v 'a[$(id)]'` runs `id`, and a glob may expand to one."""
    yield from (
        index
        for index, word in enumerate(words)
        if index and (word.glob or word.text in ("-v", "-R") or "$(" in word.text or "`" in word.text)
    )


def second_operand(words: Sequence[Word]) -> WordIndexes:
    """Flag the second operand, which `uniq IN OUT` and `xxd IN OUT` write to, and globs, which may expand to both."""
    operands: list[int] = []
    ended = False
    for index, word in enumerate(words[1:], 1):
        # After `--` (for xxd and POSIX: after the first operand), a leading dash is part of a file name.
        if ended or operands or not word.text.startswith("-") or word.text == "-":
            operands.append(index)
        ended = ended or word.text == "--"
    yield from (at for place, at in enumerate(operands) if place or words[at].glob)


def assigned_variables(words: Sequence[Word]) -> WordIndexes:
    """Flag variable assignments, such as `make SHELL=…`, `'SHELL = …'` and `'X != command'`."""
    yield from (index for index, word in enumerate(words) if index and "=" in word.text and word.text[:1] != "-")


def dot_commands(words: Sequence[Word]) -> WordIndexes:
    """Flag dot commands, such as `sqlite3 db '.shell id'` or `-cmd`."""
    yield from (index for index, word in enumerate(words) if index and re.search(r"(^|\n)\s*\.", word.text))


_SUBSCRIPTS = Check(subscripts, "words that may evaluate a subscript")
CHECKS = {
    **dict.fromkeys(AWKS, Check(awk_program, "programs that do more than read and print", reads_values=True)),
    **dict.fromkeys(EVALUATORS, _SUBSCRIPTS),
    **dict.fromkeys(
        ("test", "[", "[["), Check(evaluated_words, "words that may evaluate a subscript", reads_values=True)
    ),
    **dict.fromkeys(
        ("find", "gfind"),
        Check(find, "tests that run, write or delete (`-exec`, `-fprint`, `-delete`)", reads_values=True),
    ),
    **dict.fromkeys(("sed", "gsed"), Check(sed_script, "`-i`, `-f` and scripts that run or write", reads_values=True)),
    **dict.fromkeys(("make", "gmake"), Check(assigned_variables, "assignments of variables")),
    **dict.fromkeys(("sqlite3", "psql"), Check(dot_commands, "dot commands")),
    **dict.fromkeys(("hostname", "uniq", "xxd"), Check(second_operand, "a second operand, which is written")),
    "tar": Check(tar, "remote archives and writes outside the workspace"),
    "git": Check(git, "global options, and arguments that run programs", reads_values=True),
    "date": Check(date, "operands that set the clock"),
    "command": Check(command_query, "everything but `-v` and `-V`", reads_values=True),
    "printf": Check(printf, "`-v` and `%n`, which assign variables", reads_values=True),
}
"""By command; each flags what a list of options can't express."""
