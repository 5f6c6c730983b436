"""Which variables a line may set without a rule, and which it may never set.

A variable that is not exported reaches no program, unless the environment has one of that name already. So a line may set
names that no program reads: lower case, or words for data. Any other name counts as set in front of every command.
"""

from __future__ import annotations

import re

from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.nested_command_wrappers import ASSIGNED_SCRIPT

_LOWER_CASE = re.compile(
    r"(?!histchars|auto_resume|npm_|pnpm_|yarn_|http_|https_|ftp_|all_|no_proxy|ld_|git_)[a-z][a-z0-9_]{0,30}(?<!_proxy)"
)
_DATA_WORDS = """
    ADDED AFTER ALL ANSWER ARG ARGS BASE BEFORE BRANCH CHANGED CODE COMMIT COUNT CURRENT DATE DAY DELETED DEST DIFF DIR DIRS
    DONE END ERR ERRORS EXT FAILED FILE FILES FIRST FOUND HASH HEAD ID IDS INDEX INPUT ITEM ITEMS KEY LAST LATEST LEFT LEN
    LIMIT LINE LIST LOG MATCH MATCHES MAX MERGE MIN MISSING MODIFIED MODULE MSG NAME NAMES NEW NEXT NUM OLD OUT OUTPUT
    PACKAGE PASSED PATTERN PREV PROJECT REF RESULT RESULTS REV RIGHT ROOT SHA SIZE SOURCE SRC START STATUS STEM SUM TAG
    TARGET TEST TESTS TEXT TODAY TOTAL URL VALUE VERSION WORD WORDS
"""
_DATA_NAMES = frozenset(_DATA_WORDS.split())
_DATA_NAME = re.compile(r"[A-Z]+(_[A-Z]+){0,3}")
_READ_BY_PROGRAMS = re.compile(
    r".*PATH|.*HOME|IFS|ENV|LD_.*|DYLD_.*|BASH.*|SHELLOPTS|GLOBIGNORE|EXECIGNORE|FIGNORE|POSIXLY_CORRECT|PROMPT_.*|GIT_.*|SSH_.*"
    r"|PYTHON.*|PERL.*|RUBY.*|NODE_.*|NPM_.*|JAVA_.*|_JAVA_.*|JDK_.*|MAVEN_.*|GRADLE_.*|.*OPT|.*OPTS|.*OPTIONS|.*ARGS|.*FLAGS|.*CONFIG.*"
    r"|.*PRELOAD.*|LESS.*|MAN.*|TMPDIR|TERM.*|CC|CXX|CPP|LD|AR|AS|FC|MAKE.*|RUST.*|CARGO_.*|GO[A-Z0-9]*|GCONV.*|LOCPATH|NLSPATH"
    r"|S?RANDOM|SECONDS|LINENO|EPOCH.*|DIRSTACK|GROUPS|FUNCNAME|TEXTDOMAIN.*|HIST.*|INPUTRC|OPTIND|OPTARG|OPTERR|UID|EUID|PPID|COMP_.*|DOCKER_.*|KUBE.*|PIP_.*|UV_.*|PYTEST_.*|XDG_.*|DBUS_.*|GPG_.*",
    re.IGNORECASE | re.DOTALL,
)
_READ_OPTION = re.compile(r"-[rs]*a?|-[rs]*[nNt][0-9.]+")
_READ_VALUE = re.compile(r"-[rs]*[dnNtp]")


def is_free(name: str) -> bool:
    """Return whether a line may set the variable for itself, with any value."""
    if _LOWER_CASE.fullmatch(name):
        return True
    parts = name.split("_") if _DATA_NAME.fullmatch(name) else ()
    return bool(parts) and all(len(part) == 1 or part in _DATA_NAMES for part in parts)


def is_dangerous(name: str) -> bool:
    """Return whether the shell or programs take commands, code or places to look for them from the variable."""
    return _READ_BY_PROGRAMS.fullmatch(name) is not None or ASSIGNED_SCRIPT.fullmatch(name.upper()) is not None


def reads_free_variables(command: SimpleCommand) -> bool:
    """Return whether a `read` sets only variables that a line may set, so that the line needs no rule for it."""
    words = command.words
    if any(word.dynamic or word.glob for word in words):
        return False
    if any(name != "IFS" or value.dynamic for name, value in command.assignments):
        return False
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        with_value = _READ_VALUE.fullmatch(words[at].text) is not None
        if not with_value and not _READ_OPTION.fullmatch(words[at].text):
            return False
        at += 2 if with_value else 1
    return all(is_free(word.text) for word in words[at:])
