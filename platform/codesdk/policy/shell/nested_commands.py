"""Finds nested commands: behind a wrapper, in a script, or in an option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codesdk.policy.shell.nested_command_wrappers import (
    ARGUMENTS_AS_SCRIPT,
    AWKS,
    EVALUATORS,
    SCRIPT_OPTIONS,
    SHELLS,
    WRAPPERS,
    Wrapper,
)
from codesdk.policy.shell.words import UNKNOWN, Word

_FINDERS = frozenset(("find", "fd", "fdfind", "gfind"))
RUNS_OTHERS = (
    SHELLS
    | ARGUMENTS_AS_SCRIPT
    | _FINDERS
    | EVALUATORS
    | AWKS
    | WRAPPERS.keys()
    | SCRIPT_OPTIONS.keys()
    | {"trap", "source", ".", "git"}
)
"""Commands that may run others."""
_AWK_SYSTEM = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class NestedCommand:
    """A command or script that another command would run."""

    words: tuple[Word, ...] = ()
    script: Word | None = None
    """A shell script, in place of `words`."""
    stdin: bool = False
    """A shell that reads its script from standard input."""
    guess: bool = False
    """The text may not be a script, so parse errors in it don't count."""


def nested_commands(name: str, words: Sequence[Word]) -> Iterator[NestedCommand]:  # noqa: C901 (a branch for each kind of wrapper)
    """Yield what `words` would run in addition to itself; `name` is the command word without directories."""
    arguments = tuple(words[1:])
    if name in SHELLS:
        yield _shell(arguments)
    elif name in ARGUMENTS_AS_SCRIPT:
        yield from _script_from_arguments(name, arguments)
    elif name in _FINDERS:
        yield from _find_exec(arguments)
    elif name in WRAPPERS:
        yield from _wrapped_command(WRAPPERS[name], arguments)
        if name in ("coproc", "time"):
            yield from (
                NestedCommand(words=arguments[at + 1 :]) for at, word in enumerate(arguments) if word.text == "{"
            )
    elif name == "trap" and arguments:
        yield NestedCommand(script=arguments[0], guess=len(arguments) == 1)
    elif name in ("source", ".") and arguments:
        if _is_stdin(arguments[0]) or not arguments[0].literal:
            yield NestedCommand(stdin=True)
    elif name in EVALUATORS:
        yield from (NestedCommand(script=word, guess=True) for word in arguments if _is_substitution(word))
    elif name in AWKS:
        yield from _awk_strings(arguments)
    elif name == "git":
        yield from _git(arguments)
    if name in SCRIPT_OPTIONS:
        yield from _script_options(SCRIPT_OPTIONS[name], arguments)


def _is_substitution(word: Word) -> bool:
    return "$(" in word.text or "`" in word.text


def _is_stdin(word: Word) -> bool:
    return word.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def _shell(arguments: tuple[Word, ...]) -> NestedCommand:
    """Parse `sh [options] [-c script | file | -s]`, including option clusters such as `-lc`."""
    script = False
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word.text in ("--", "-") and word.literal:
            at += 1
            break
        if not word.literal or word.text[:1] not in ("-", "+") or len(word.text) == 1:
            break
        if word.text.startswith("--"):
            at += 2 if word.text in ("--rcfile", "--init-file") else 1
            continue
        script = script or "c" in word.text
        if "s" in word.text and not script:
            return NestedCommand(stdin=True)
        at += 2 if word.text[-1] in "oO" else 1
    rest = arguments[at:]
    if script:
        return NestedCommand(script=rest[0]) if rest else NestedCommand()
    if not rest or _is_stdin(rest[0]):
        return NestedCommand(stdin=True)
    return NestedCommand(words=()) if rest[0].literal else NestedCommand(words=(UNKNOWN,))


def _script_from_arguments(name: str, arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    operands = 1 if name == "ssh" else 0
    values = "bcDEeFIiJLlmOopQRSWw" if name == "ssh" else "nIdtjPaNLsSw"
    at = 0
    while name != "eval" and at < len(arguments) and arguments[at].text.startswith("-"):
        text = arguments[at].text
        if name == "ssh" and text.startswith("-o"):
            option = text[2:] or (arguments[at + 1].text if at + 1 < len(arguments) else "")
            yield NestedCommand(script=Word(option.partition("=")[2]), guess=True)
        at += 2 if len(text) == 2 and text[1] in values else 1  # noqa: PLR2004 (a dash and a letter)
        if text == "--":
            break
    rest = arguments[at + operands :]
    if not rest:
        return
    if name == "hyperfine":
        yield from (NestedCommand(script=word, guess=True) for word in rest)
        return
    inputs = name == "parallel"
    dynamic = any(not word.literal for word in rest) or (inputs and any("{" in word.text for word in rest))
    yield NestedCommand(script=Word(" ".join(word.text for word in rest), dynamic=dynamic))
    if dynamic and rest[0].literal and "{" not in rest[0].text:
        yield NestedCommand(words=(rest[0], *(UNKNOWN if not word.literal else word for word in rest[1:])))


def _find_exec(arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    """Yield the commands of `find … -exec command … ;` and `fd -x command …`. `{}` is unknown until run time."""
    starts = ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch")
    for at, word in enumerate(arguments):
        if word.text not in starts:
            continue
        command: list[Word] = []
        for part in arguments[at + 1 :]:
            if part.text == ";" or (part.text == "+" and command and command[-1].dynamic):
                break
            command.append(Word(part.text, dynamic=True) if "{}" in part.text else part)
        if command:
            yield NestedCommand(words=tuple(command))


def _wrapped_command(wrapper: Wrapper, arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    if wrapper.subcommands:
        first = next((at for at, word in enumerate(arguments) if not word.text.startswith("-") or word.dynamic), None)
        # `npm --loglevel silent exec rm`: any later word may be the subcommand.
        first = next((at for at, word in enumerate(arguments) if word.text in wrapper.subcommands), first)
        if first is None or arguments[first].text not in wrapper.subcommands:
            return
        arguments = arguments[first + 1 :]
    starts, scripts, replaced = _starts(wrapper, arguments)
    yield from scripts
    certain = next((at for at, word in enumerate(arguments) if _may_split(word)), len(arguments))
    if not starts or max(starts) > certain:
        # A glob or variable in front may expand to several words or none, which changes the command word.
        yield from [NestedCommand(words=(UNKNOWN,))] if certain < len(arguments) else ()
    for start in sorted(starts):
        words = arguments[start:]
        if not wrapper.inputs:
            yield NestedCommand(words=words)
            continue
        marks = [mark for mark in (*replaced, "{}") if mark]
        filled = tuple(
            Word(word.text, dynamic=True) if any(mark in word.text for mark in marks) else word for word in words
        )
        yield NestedCommand(words=filled if filled != words else (*words, UNKNOWN))


def _may_split(word: Word) -> bool:
    """Return whether the word may expand to an option, or to more or fewer words than one."""
    return word.may_be_option or word.glob or not (word.literal or word.single)


def _starts(wrapper: Wrapper, arguments: tuple[Word, ...]) -> tuple[set[int], list[NestedCommand], list[str]]:
    """Return every index where the inner command may start, scripts in options, and xargs' replacement strings."""
    scripts: list[NestedCommand] = []
    replaced: list[str] = []
    found: set[int] = set()
    pending = [(0, wrapper.operands)]
    visited: set[tuple[int, int]] = set()
    while pending:
        at, operands = pending.pop()
        if at >= len(arguments) or (at, operands) in visited:
            continue
        visited.add((at, operands))
        word = arguments[at]
        if word.literal and word.text == "--" and not operands:
            found.add(at + 1)
        elif word.literal and word.text in ("-", "--"):
            pending.append((at + 1, operands))
        elif word.literal and word.text.startswith("-"):
            if word.text in wrapper.queries:
                return set(), scripts, replaced
            pending.extend((then, operands) for then in _after_option(wrapper, arguments, at, scripts, replaced))
        elif wrapper.assignments and re.match(r"[A-Za-z_]\w*=", word.text):
            pending.append((at + 1, operands))
        elif operands:
            pending.append((at + 1, operands - 1))
        else:
            found.add(at)
    return {start for start in found if start < len(arguments)}, scripts, replaced


def _after_option(
    wrapper: Wrapper, arguments: tuple[Word, ...], at: int, scripts: list[NestedCommand], replaced: list[str]
) -> Iterator[int]:
    """Yield where parsing continues after an option: after its value, at the next word, or both if unknown."""
    option, value = _option(arguments[at].text, wrapper)
    following = arguments[at + 1] if at + 1 < len(arguments) else Word("")
    carried = following if value is None else Word(value)
    if option in wrapper.script:
        behind = arguments[at + (2 if value is None else 1) :] if option in ("-S", "--split-string") else ()
        text = " ".join([carried.text, *(word.text for word in behind)])
        scripts.append(NestedCommand(script=Word(text, dynamic=not all(word.literal for word in (carried, *behind)))))
    if option == "-I" or (option == "--replace" and value is not None):
        replaced.append(carried.text)
    takes = value is None and (option in wrapper.values or option in wrapper.script)
    if takes or (value is None and option not in wrapper.bare):
        yield at + 2
    if not takes:
        yield at + 1


def _option(text: str, wrapper: Wrapper) -> tuple[str, str | None]:
    """Return the option's name, and its value if it is in the same word."""
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        return name, value if equals else None
    taking = wrapper.values | wrapper.script
    if text[:2] in taking and len(text) > 2:  # noqa: PLR2004 (a dash and a letter)
        return text[:2], text[2:]
    if len(text) > 2 and "-" + text[-1] in taking and text not in taking:  # noqa: PLR2004
        return "-" + text[-1], None
    return text, None


def _awk_strings(arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    for word in arguments:
        if "system" in word.text or "|" in word.text:
            yield from (NestedCommand(script=Word(match[1]), guess=True) for match in _AWK_SYSTEM.finditer(word.text))


def _git(arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    texts = [word.text for word in arguments]
    for at, text in enumerate(texts[:-1]):
        if text in ("-c", "--config") and "=" in texts[at + 1]:
            yield NestedCommand(script=Word(texts[at + 1].partition("=")[2].removeprefix("!")), guess=True)
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        if first in texts and second in texts[texts.index(first) :]:
            at = texts.index(second, texts.index(first)) + 1
            rest = [word for word in arguments[at:] if word.text not in ("--recursive", "-q", "--quiet")]
            yield NestedCommand(script=Word(" ".join(word.text for word in rest)), guess=True)
    if texts[:1] == ["config"] and texts:
        yield NestedCommand(script=Word(texts[-1].removeprefix("!")), guess=True)


def _script_options(options: frozenset[str], arguments: tuple[Word, ...]) -> Iterator[NestedCommand]:
    for at, word in enumerate(arguments):
        name, equals, value = word.text.partition("=")
        if name in options:
            script = value if equals else (arguments[at + 1].text if at + 1 < len(arguments) else "")
            yield NestedCommand(script=Word(script.removeprefix("exec=")), guess=True)
        elif word.text[:2] in options and not word.text.startswith("--"):
            yield NestedCommand(script=Word(word.text[2:]), guess=True)
