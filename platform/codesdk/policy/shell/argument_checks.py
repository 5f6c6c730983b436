"""Commands whose arguments need more than a list of options to be judged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from codesdk.policy.shell import awk, sed
from codesdk.policy.shell.options import Options, WordIndexes, dangerous_options
from codesdk.policy.shell.words import Word

_ABSOLUTE = re.compile(r"(^|=)(/(?!dev/null$|tmp/|workspace/)|~|(.*/)?\.\.(/|$))")


def find(words: Sequence[Word]) -> WordIndexes:
    """Tests that run, write or delete; and patterns that may become one."""
    acting = ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
    yield from (index for index, word in enumerate(words) if word.text in acting or (index and word.may_be_option))


def sed_script(words: Sequence[Word]) -> WordIndexes:  # noqa: C901 (a branch for each way to give a script)
    """Scripts from `-e` or the first operand must be understood; `-i`, `-f` and unknown options are not."""
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
            # A bare `-l` takes the next word in GNU sed and none in BSD's: which word is the script is then not certain.
            if text not in known and not re.fullmatch(r"-[nErsuz]+|-l[0-9]+|--line-length=[0-9]+", text):
                yield index
        else:
            operands.append(index)
        index += 1
    if not scripts and operands:
        scripts = [(operands[0], words[operands[0]].text)]
    whole = "\n".join(text for _, text in scripts)
    # A script with a glob in it is another script where a file has a fitting name.
    if scripts and (any(words[at].glob for at, _ in scripts) or not sed.edits_only(whole)):
        yield scripts[0][0]


def awk_program(words: Sequence[Word]) -> WordIndexes:
    """Only `-F` and `-v` and harmless switches; the program must be understood."""
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
    if index < len(words) and (words[index].glob or not awk.is_read_only(words[index].text)):
        yield index
    # BusyBox looks for options behind the program too.
    yield from (at for at, word in enumerate(words) if at > index and word.text[:1] == "-" and word.text != "-")


_TAR_VALUES = frozenset("fCbTXVNHKLIgF")
_TAR_WRITES = re.compile(r"--(create|append|update|extract|get|catenate|concatenate)$")


def tar(words: Sequence[Word]) -> WordIndexes:
    """Archives on other hosts (`host:file` starts rsh), and archives or directories outside the workspace that are written."""
    if len(words) > 1 and words[1].glob:
        yield 1  # the first word's letters say what is done
    options = list(_tar_options(words))
    writes = any(option in "crux" or _TAR_WRITES.match(option) for _, option, _ in options)
    for at, option, value in options:
        names_path = option in ("f", "C", "--file", "--directory")
        remote = option in ("f", "--file") and ":" in value and not value.startswith(("./", "/"))
        outside = writes and names_path and _ABSOLUTE.search(value) is not None
        if remote or outside or option in ("I", "F", "g"):
            yield at


def _tar_options(words: Sequence[Word]) -> Iterator[tuple[int, str, str]]:
    """Where the value stands (the option, where it has none), option and value; the first word may be a cluster without a dash, which takes its values from the words behind."""
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
_GIT_WHOLE = frozenset(
    [
        "config",
        "filter-branch",
        "difftool",
        "mergetool",
        "credential",
        "send-email",
        "instaweb",
        "daemon",
        "hook",
        "maintenance",
        "shell",
        "remote-ext",
        "remote-fd",
        "upload-pack",
        "receive-pack",
        "upload-archive",
        "cvsserver",
        "p4",
        "svn",
        "fast-import",
    ]
)
_GIT_PAIRS = {"bisect": "run", "submodule": "foreach", "rebase": "--interactive", "help": "--web"}
_GIT_OPTIONS = Options(
    (
        "--ext-diff",
        "--output",
        "--output-directory",
        "--exec",
        "--upload-pack",
        "--receive-pack",
        "--open-files-in-pager",
        "--extcmd",
        "--template",
        "--config",
        "--config-env",
        "--exec-path",
        "--interactive",
    )
)
_GIT_SHORT = {
    "grep": Options(short="O", values="efABCm"), "archive": Options(short="o"), "format-patch": Options(short="o", values="v"),
    "clone": Options(short="uc", values="obj"), "rebase": Options(short="xi", values="Xs"), "init": Options(),
}  # fmt: skip


def git(words: Sequence[Word]) -> WordIndexes:
    """Global options except harmless ones, whole subcommands that run programs, and options that do so in the rest."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text not in _GIT_SAFE_GLOBALS:
            yield at
        at += 1
    if at >= len(words):
        return
    subcommand = words[at].text
    if subcommand in _GIT_WHOLE or words[at].glob:
        yield at
    for index, word in enumerate(words[at + 1 :], at + 1):
        if word.text.startswith(("ext::", "fd::")) or word.text == _GIT_PAIRS.get(subcommand):
            yield index
    for options in (_GIT_OPTIONS, _GIT_SHORT.get(subcommand)):
        if options is not None:
            yield from (index + at for index in dangerous_options(options, words[at:]))


def date(words: Sequence[Word]) -> WordIndexes:
    """`date 01020304` sets the clock, as `--set` does; `date +%s` and options with their values do not."""
    index = 1
    while index < len(words):
        text = words[index].text
        if text in ("-d", "-f", "-r", "--date", "--file", "--reference"):
            index += 1  # a value follows, whatever it looks like
        elif not text.startswith(("-", "+")) or words[index].may_be_option:
            yield index
        index += 1


def command_query(words: Sequence[Word]) -> WordIndexes:
    """`command -v ls` asks where `ls` is; everything else that `command` does is running it."""
    if len(words) < 2 or not words[1].literal or words[1].text not in ("-v", "-V"):  # noqa: PLR2004 (its name and an option)
        yield from range(1, len(words)) if len(words) > 1 else (0,)


_ASSIGNS = re.compile(r"(?<!%)(%%)*%[-+ #'0-9.*hjlLqtz]*n")
"""bash skips flags and length modifiers in front of the `n`."""


def printf(words: Sequence[Word]) -> WordIndexes:
    """`-v` assigns, and evaluates a subscript on the way; `%n` assigns too."""
    at = 2 if len(words) > 1 and words[1].text == "--" else 1
    if len(words) > at and (
        words[at].may_be_option or words[at].text.startswith("-v") or _ASSIGNS.search(words[at].text)
    ):
        yield at


def subscripts(words: Sequence[Word]) -> WordIndexes:
    """`test -v 'a[$(id)]'` runs `id`; and a file can have that name."""
    yield from (
        index
        for index, word in enumerate(words)
        if index and (word.glob or word.text in ("-v", "-R") or "$(" in word.text or "`" in word.text)
    )


def second_operand(words: Sequence[Word]) -> WordIndexes:
    """`uniq IN OUT` writes OUT, `xxd IN OUT` too; and a glob can be both of them."""
    operands: list[int] = []
    ended = False
    for index, word in enumerate(words[1:], 1):
        # Behind `--`, and for xxd and POSIX behind the first operand, a dash begins a file's name.
        if ended or operands or not word.text.startswith("-") or word.text == "-":
            operands.append(index)
        ended = ended or word.text == "--"
    yield from (at for place, at in enumerate(operands) if place or words[at].glob)


def assigned_variables(words: Sequence[Word]) -> WordIndexes:
    """`make SHELL=…` and every other variable."""
    yield from (index for index, word in enumerate(words) if index and re.match(r"[A-Za-z_.]\w*[:+?!]?=", word.text))


def dot_commands(words: Sequence[Word]) -> WordIndexes:
    """`sqlite3 db '.shell id'`, `-cmd`."""
    yield from (index for index, word in enumerate(words) if index and re.search(r"(^|\n)\s*\.", word.text))
