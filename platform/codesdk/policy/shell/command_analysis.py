"""Builds the allow and ask-deny views of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tree_sitter import Node

from codesdk.policy.shell.commands import MAX_COMMANDS, MAX_GUESSES, MAX_NESTING, ShellViews, SimpleCommand
from codesdk.policy.shell.nested_command_wrappers import ASSIGNED_SCRIPT
from codesdk.policy.shell.nested_commands import NestedCommand, nested_commands
from codesdk.policy.shell.parser import Script, collect_commands
from codesdk.policy.shell.words import Word

# Control characters except tab and newline, invisible and bidirectional characters, spaces other than U+0020.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff0-\ufffb\ue000-\uf8ff\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_SEPARATORS = frozenset(
    ("&&", "||", ";", "|", "|&", "\n", "!", "(", ")", "{", "}", "if", "then", "elif", "else", "fi", "do", "done")
)
_LOOP_VARIABLE = re.compile(r"(?!histchars|auto_resume)[a-z][a-z0-9_]{0,30}(?<!_proxy)")
_COMPOUND_NODES = frozenset(
    [
        *("program", "list", "pipeline", "negated_command", "redirected_statement", "subshell", "compound_statement"),
        *("if_statement", "elif_clause", "else_clause", "do_group"),
    ]
)
_CONSTRUCTS = {
    "command_substitution": "a command substitution `$(…)`",
    "process_substitution": "a process substitution `<(…)`",
    "function_definition": "a function",
    "arithmetic_expansion": "an arithmetic expansion `$((…))`",
    "variable_assignment": "an assignment",
    "variable_assignments": "assignments",
}
"""What a person calls the parser's nodes; others are named by their first word, such as `while` or `export`."""
_SEGMENT_END = re.compile(r"[;&|(){}<>`\n]+")
_QUOTES = re.compile(r"['\"\\]")
_GLOB_MARKS = frozenset("*?[")
_GUESSED_WORDS = 64
"""Words of a guessed command: enough for every pattern, and little enough for MAX_GUESSES commands."""
_BEFORE_WORD = frozenset(b" \t\n;&|()<>{`!")


def analyze_line(line: str, stdin: str | None = None) -> ShellViews:
    """Return both views of a shell line; `stdin` is the tool call's standard input, if any."""
    survey = _AskDenyView(stdin)
    hidden = _HIDDEN.search(line)
    if hidden:
        survey.mark_opaque(f"it holds the invisible character U+{ord(hidden[0]):04X}")
        for text in _without_hidden(line):
            survey.script(Script(text), 0, guess=True)
    script = Script(line)
    survey.script(script, 0)
    if hidden or script.is_unreliable or survey.over_limit:
        survey.guess(line)
    if survey.opaque:
        return survey.views(None, survey.opaque)
    return survey.views(*_allow_view(script))


def analyze_argv(argv: Sequence[str], stdin: str | None = None) -> ShellViews:
    """Return both views of an argument list, which runs without a shell, so nothing in it expands."""
    survey = _AskDenyView(stdin)
    if not argv:
        survey.mark_opaque("it is empty")
        return survey.views(None, survey.opaque)
    command = SimpleCommand(tuple(Word(text) for text in argv))
    if "\0" in "".join(argv) or _HIDDEN.search(argv[0]):
        survey.mark_opaque("it holds a hidden character")
        survey.command(SimpleCommand(tuple(Word(_HIDDEN.sub("", text)) for text in argv)), 0, guess=True)
        survey.guess(" ".join(argv))
    survey.command(command, 0)
    return survey.views((command,) if not survey.opaque else None, survey.opaque)


def analyze_unclear(values: Iterable[Any], stdin: str | None) -> ShellViews:
    """Return the views of a call whose command is neither one line nor one list of words: what its values may run."""
    survey = _AskDenyView(stdin)
    survey.mark_opaque("its command is neither one line nor one list of words")
    for value in values:
        texts = [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
        if texts:
            survey.command(SimpleCommand(tuple(Word(text) for text in texts)), 0, guess=True)
        elif isinstance(value, str):
            survey.script(Script(value), 0, guess=True)
            survey.guess(value)
    return survey.views(None, survey.opaque)


def _without_hidden(text: str) -> set[str]:
    """Return what the text may mean to a reader: its hidden characters left out, or as spaces."""
    return {_HIDDEN.sub("", text), _HIDDEN.sub(" ", text)}


class _AskDenyView:
    """Collects every command that might run, including those in scripts inside arguments."""

    def __init__(self, stdin: str | None) -> None:
        self.opaque = ""
        self._found: list[SimpleCommand] = []
        self._guessed: list[SimpleCommand] = []
        self._redirections: list[Word] = []
        self._values: list[tuple[str, Word]] = []
        self._inputs: list[str] = [stdin] if stdin else []
        self.over_limit = False
        self._stdin = stdin

    def views(self, allow_view: tuple[SimpleCommand, ...] | None, refusal: str) -> ShellViews:
        """Return both views; the ask-deny view holds what was collected."""
        return ShellViews(
            allow_view,
            refusal,
            tuple(self._found),
            self.opaque,
            tuple(self._guessed),
            over_limit=self.over_limit,
            redirections=tuple(self._redirections),
            values=tuple(self._values),
            inputs=tuple(self._inputs),
        )

    def script(self, script: Script, depth: int, *, guess: bool = False) -> None:
        """Collect every command of a parsed script. If the script is a guess, errors in it are ignored."""
        if script.too_much:
            if not guess:
                self._exceed("it is too long or too tangled to parse")
            return
        if script.root.has_error:
            self._mark_opaque("it is not a shell command that can be parsed", guess)
        collect_commands(script)
        self._redirections += script.redirections
        self._values += script.values
        self._inputs += [document.text for document in script.here_documents]
        if script.broken:
            self._mark_opaque(script.broken, guess)
        for command in script.commands.values():
            self.command(command, depth, script, guess=guess)
        for text in script.embedded:
            self._script(Word(text), depth, guess=guess)

    def command(self, command: SimpleCommand, depth: int, script: Script | None = None, *, guess: bool = False) -> None:
        """Collect a simple command and its nested commands."""
        if len(self._found) >= MAX_COMMANDS:
            self._exceed(f"it runs more than {MAX_COMMANDS} commands")
            return
        for name, value in command.assignments:
            if value.literal and ("$(" in value.text or "`" in value.text or ASSIGNED_SCRIPT.fullmatch(name)):
                self._script(value, depth, guess=True)
        self._values += command.assignments
        if not command.words:
            return
        self._found.append(command)
        if not command.name:
            self._mark_opaque("the name of a command in it is not known before it runs", guess)
            return
        for inner in nested_commands(command.name, command.words):
            if inner.stdin:
                self._standard_input(script, depth, guess=guess)
            elif inner.script is not None:
                self._script(inner.script, depth, guess=inner.guess or guess)
            elif inner.words:
                self._nested(inner, depth, script, guess=guess)

    def _nested(self, inner: NestedCommand, depth: int, script: Script | None, *, guess: bool) -> None:
        if depth >= MAX_NESTING:
            self._exceed("commands are nested too deep in it")
        else:
            self.command(SimpleCommand(inner.words), depth + 1, script, guess=guess)

    def _script(self, text: Word, depth: int, *, guess: bool) -> None:
        if depth >= MAX_NESTING:
            self._exceed("scripts are nested too deep in it")
        elif not text.literal:
            self._mark_opaque("a script in it is not known before it runs", guess)
            if text.text.strip():  # the known part may be enough to deny
                self.script(Script(text.text), depth + 1, guess=True)
        elif text.text.strip():
            if _HIDDEN.search(text.text):
                self._mark_opaque("a script in it holds an invisible character", guess)
                for variant in _without_hidden(text.text):
                    self.script(Script(variant), depth + 1, guess=True)
            script = Script(text.text)
            self.script(script, depth + 1, guess=guess)
            if script.is_unreliable and not guess:
                self.guess(text.text)

    def _standard_input(self, script: Script | None, depth: int, *, guess: bool) -> None:
        texts = list(script.here_documents) if script else []
        if self._stdin is not None:
            texts.append(Word(self._stdin))
        self._mark_opaque("a shell in it reads its script from standard input", guess)
        for text in texts:
            self._script(text, depth, guess=True)

    def guess(self, text: str) -> None:
        """Take every word of a text that can't be parsed reliably as the name of a command with the words behind it."""
        for segment in _SEGMENT_END.split(_HIDDEN.sub(" ", text)):
            words = tuple(map(_guessed_word, segment.split()))
            if len(self._guessed) + len(words) > MAX_GUESSES:
                self._exceed("it is too long to be read word by word")
                return
            self._guessed += [SimpleCommand(words[at : at + _GUESSED_WORDS]) for at in range(len(words))]

    def mark_opaque(self, why: str) -> None:
        """Note why the collected commands may not be all; the first reason stays."""
        self.opaque = self.opaque or why

    def _mark_opaque(self, why: str, guess: bool) -> None:
        if not guess:
            self.mark_opaque(why)

    def _exceed(self, why: str) -> None:
        self.mark_opaque(why)
        self.over_limit = True


def _guessed_word(text: str) -> Word:
    """Return a word without its quotes; what follows a `$` is unknown."""
    known, dollar, _ = _QUOTES.sub("", text).partition("$")
    return Word(known, dynamic=bool(dollar), glob=not _GLOB_MARKS.isdisjoint(known))


def _allow_view(script: Script) -> tuple[tuple[SimpleCommand, ...] | None, str]:
    """Return the commands of a script that contains only known commands, or why there is no allow view."""
    commands: list[SimpleCommand] = []
    stack: list[Node] = [script.root]
    while stack:
        node = stack.pop()
        kind = node.type
        if kind in _COMPOUND_NODES:
            stack.extend(reversed(node.children))
            continue
        refusal = _refusal(script, node, kind)
        if refusal:
            return None, refusal
        if kind == "for_statement":
            stack.append(node.children[-1])
        if kind in ("command", "test_command"):
            commands.append(script.commands[node.id])
        elif kind == "heredoc_redirect":  # anything after the delimiter on its line is a child of the document
            stack.extend(child for child in reversed(node.children) if not child.type.startswith(("heredoc_", "<<")))
    return (tuple(commands), "") if commands else (None, "it runs no command")


def _refusal(script: Script, node: Node, kind: str) -> str:  # noqa: C901 (a branch for each kind of node)
    """Return why a node is not allowed in the allow view; empty if it is."""
    refusal = ""
    if kind == "command":
        refusal = _command_refusal(script, node, script.commands[node.id])
    elif kind == "for_statement":
        refusal = _loop_refusal(script, node)
    elif kind == "test_command":
        refusal = "" if node.id in script.plain_tests else _unknown(script, node)
    elif kind == "{":  # bash reads `{ls` as one word
        refusal = (
            "" if script.source[node.end_byte : node.end_byte + 1] in (b" ", b"\t", b"\n") else _unknown(script, node)
        )
    elif kind == "file_redirect":
        refusal = _redirect_refusal(script, node)
    elif kind in ("heredoc_redirect", "herestring_redirect"):
        if len(script.here_documents) > 1 or not script.here_documents[0].literal:
            refusal = "a here-document in it is not plain text"
    elif kind == "comment":
        if not _starts_at_boundary(script, node.start_byte):
            refusal = "a comment in it may not be one"
    elif kind not in _SEPARATORS:
        refusal = _unknown(script, node)
    return refusal


def _unknown(script: Script, node: Node) -> str:
    text = script.text(node.start_byte, node.end_byte)
    construct = _CONSTRUCTS.get(node.type, "")
    return f"it has {construct}" if construct else f"it uses `{(text.split() or [node.type])[0][:20]}`"


def _command_refusal(script: Script, node: Node, command: SimpleCommand) -> str:
    for child in node.children:
        kind = child.type
        if kind.endswith("_redirect"):
            # Here-strings are children of their command; file redirections and here-documents usually are its siblings.
            refusal = _refusal(script, child, kind)
            if refusal:
                return refusal
        elif not _starts_at_boundary(script, child.start_byte):
            # Adjacent pieces were parsed as one word. A child that starts anywhere else inside a word was misparsed.
            before = script.source[: child.start_byte]
            if not before.endswith(b"\\\n"):
                return "its words cannot be separated reliably"
    return _words_refusal(command)


def _words_refusal(command: SimpleCommand) -> str:
    """Check that the command word and assignments are literal; arguments may be plain variables."""
    words = command.words
    if not words:
        return "it only sets variables"
    # Inlined `word.literal`, because this runs for each word of each command.
    for word in words:
        if word.broken or (word.dynamic and not word.plain):
            return "it expands something that is only known when it runs"
    if words[0].dynamic or any(value.dynamic or value.broken for _, value in command.assignments):
        return "it expands something that is only known when it runs"
    return "the name of a command in it is a pattern" if words[0].glob else ""


def _loop_refusal(script: Script, node: Node) -> str:
    """Accept `for name in words; do …; done` with a variable that only the loop uses. The caller checks the body."""
    kinds = [child.type for child in node.children]
    if kinds[0] != "for" or kinds[-1] != "do_group" or "ERROR" in kinds:
        return "it uses a loop of another kind"
    for child in node.children[1:-1]:
        if child.type == "variable_name":
            if not _LOOP_VARIABLE.fullmatch(script.text(child.start_byte, child.end_byte)):
                return "a loop in it sets a variable that may mean something to a program"
        elif child.type not in ("in", ";", "\n"):
            word = script.word(child)
            if word.broken or (word.dynamic and not word.plain) or not _starts_at_boundary(script, child.start_byte):
                return "it expands something that is only known when it runs"
    return ""


def _redirect_refusal(script: Script, node: Node) -> str:
    """Accept redirections to /dev/null, descriptor copies, and reads of a named file."""
    targets = node.children_by_field_name("destination")
    operator = next((child.type for child in node.children if not child.is_named), "")
    if not targets:
        return "a redirection in it names no file"
    word = script.word(targets[0])
    if not word.literal or word.glob:
        return "a redirection in it names a file that is only known when it runs"
    if operator in (">&", "<&", ">&-", "<&-") and (word.text.isdigit() or word.text == "-"):
        return ""
    if operator == "<" and not word.text.startswith(("/dev/tcp", "/dev/udp")):
        return ""
    if operator in (">", ">>", ">|", "&>", "&>>") and word.text == "/dev/null":
        return ""
    return "it writes to a file through a redirection" if ">" in operator else "it uses a redirection"


def _starts_at_boundary(script: Script, start: int) -> bool:
    return start == 0 or script.source[start - 1] in _BEFORE_WORD
