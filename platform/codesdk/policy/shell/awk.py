"""Checks whether an awk program only reads and prints: no commands, no file writes, no loaded code."""

from __future__ import annotations

import re

MAX_LENGTH = 8192
"""Characters. A longer program needs human review."""

_STRING = re.compile(r'"([^"\\\n]|\\.)*"', re.DOTALL)
# No `/` or lone `[` inside a bracket expression: awk implementations disagree on where such a regex ends.
# Possessive: there is one way to read each character, and backtracking would try all combinations of others.
_REGEX = re.compile(r"/([^/\\\n\[]|\\.|\[\^?+\]?+(\[:[a-z]+:\]|[^\]\[\\\n/]|\\.)*+\])++/")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DANGER = re.compile(r"system|/inet|[|>@]")
_STARTS_REGEX = frozenset(("", "(", ",", "{", ";", "\n", "!", "~", "&&", "||", "}"))
_ENDS_VALUE = re.compile(r"[\w\]]")
_KEYWORDS = frozenset(("print", "printf", "in", "return", "getline", "else", "do", "exit", "case", "delete", "length"))
"""Words after which `/` may start a regex."""


def is_read_only(program: str) -> bool:  # noqa: C901, PLR0912 (a tokenizer: a branch for each kind of token)
    """Return whether `program` runs no command, writes no file and makes no indirect call."""
    at = 0
    before = ""  # the previous token, as far as it decides what `/` means
    printing = False  # inside print or printf, where a bare `>` redirects
    depth = 0
    last_risk = max([program.rfind('"'), *(match.start() for match in _DANGER.finditer(program))])
    while at < len(program) <= MAX_LENGTH:
        char = program[at]
        step = 1
        if char == "#":
            end = program.find("\n", at)
            step = (end if end >= 0 else len(program)) - at
        elif char == '"':
            match = _STRING.match(program, at)
            if match is None:
                return False
            step, before = match.end() - at, '"'
        elif char == "/" and before in _STARTS_REGEX:
            match = _REGEX.match(program, at)
            if match is None:
                return False
            step, before = match.end() - at, "/re/"
        elif char == "/":
            # Division or regex? After a value it is division; otherwise neither reading of the rest is safe.
            plain_value = _ENDS_VALUE.fullmatch(before[-1:]) is not None and before not in _KEYWORDS
            if not plain_value and at <= last_risk:
                return False
            before = "/"
        elif match := _NAME.match(program, at):
            if match[0] == "system" or (match[0] == "getline" and ("|" in program or "<" in program)):
                return False  # `getline < file`: the name may be put together, and gawk opens connections by names
            if match[0] in ("print", "printf"):
                printing, depth = True, 0  # `for (;;)` leaves one closing parenthesis too many
            step, before = match.end() - at, match[0]
        elif program[at : at + 2] in ("||", "&&"):
            step, before = 2, program[at : at + 2]
        elif (
            char in "|@"
            or program[at : at + 2] == ">>"
            or (char == ">" and printing and depth <= 0)
            or (char == "\\" and program[at + 1 : at + 2] != "\n")
        ):
            return False
        elif char == "\\":
            step = 2  # a continued line: `before` still applies
        elif not char.isspace() or char == "\n":
            # A newline does not end the statement after a comma, `&&` or `||`, so only these do.
            if char in ";}":
                printing, depth = False, 0
            depth += (char in "([") - (char in ")]")
            before = char
        at += step
    # gawk opens network connections through these names.
    return len(program) <= MAX_LENGTH and "/inet" not in program
