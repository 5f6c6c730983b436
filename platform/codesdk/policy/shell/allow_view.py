"""Builds the allow view of a line: exactly the commands that run, or why rules can't allow it.

Handles a fixed list of shell constructs; a line with any other has no allow view. A substitution is parsed as a script of
its own, and each of its commands must also be in the ask-deny view, which parses the whole line at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tree_sitter import Node

from codesdk.policy.shell.commands import MAX_NESTING, SimpleCommand
from codesdk.policy.shell.find import executed_commands, names_for_xargs
from codesdk.policy.shell.parser import Script, collect_commands
from codesdk.policy.shell.variables import is_dangerous, is_free, reads_free_variables
from codesdk.policy.shell.words import Word
from codesdk.policy.shell.workspace_paths import moves

_SEPARATORS = frozenset(
    [
        *("&&", "||", ";", "|", "|&", "\n", "!", "(", ")", "{", "}"),
        *("if", "then", "elif", "else", "fi", "do", "done", "while", "until"),
    ]
)
_COMPOUND_NODES = frozenset(
    [
        *("program", "list", "pipeline", "negated_command", "subshell", "compound_statement"),
        *("if_statement", "elif_clause", "else_clause", "do_group", "while_statement"),
    ]
)
_CONSTRUCTS = {
    "command_substitution": "a command substitution `$(…)`",
    "process_substitution": "a process substitution `<(…)`",
    "function_definition": "a function",
    "arithmetic_expansion": "an arithmetic expansion `$((…))`",
}
"""Names of the parser's nodes in messages; others are named by their first word, such as `case` or `declare`."""
_UNKNOWN_VALUE = "it expands something that is only known when it runs"
_UNKNOWN_NAME = "the name of a command in it is only known when it runs"
_TAKES_COMMANDS = "which the shell or programs take commands or code from"
_WRITING = frozenset((">", ">>", ">|", "&>", "&>>"))
_SET_OPTIONS = re.compile(r"[-+][euxfo]{1,4}|pipefail|errexit|nounset|xtrace|noglob|--")
"""Arguments of `set` that are allowed in a line that sets variables. `set -a` would export them."""
_UNAFFECTED = frozenset(
    [
        *("cd", "echo", "printf", "pwd", "true", "false", ":", "test", "[", "[["),
        *("basename", "cat", "cut", "date", "dirname", "grep", "head", "ls", "mkdir", "seq", "sleep", "sort", "tail"),
        *("tee", "touch", "tr", "uniq", "wc"),
    ]
)
"""Commands that read no variable that a line may export, except for colours and the language."""
_LEAVES_A_LOOP = frozenset(("break", "continue", "exit"))
_QUIET = re.compile(r"2>[ \t]*/dev/null")
_PLAIN_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


class _Refused(Exception):
    """Rules can't allow the line."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Place(NamedTuple):
    """What encloses a node."""

    depth: int = 0
    """Substitutions around it."""
    writes: tuple[str | None, ...] = ()
    background: bool = False
    loop: bool = False


class AllowView:
    """Collects the commands of one line."""

    def __init__(self, seen: Iterable[SimpleCommand]) -> None:
        self._seen = seen
        self._seen_words: frozenset[tuple[Word, ...]] | None = None
        self._commands: list[SimpleCommand] = []
        self._exported: list[str] = []
        self._written: set[str | None] = set()
        self._sets_variables = False
        self.moves_in_loop = False
        """Changes the directory in a loop, so that where its commands run is not known."""

    def build(self, script: Script) -> tuple[tuple[SimpleCommand, ...] | None, str]:
        """Return the commands, or None and why there is no allow view."""
        try:
            self._script(script, _Place())
            self._check_written()
            if self._sets_variables:
                self._check_exports()
        except _Refused as refused:
            return None, refused.why
        return tuple(self._commands), ""

    def _script(self, script: Script, place: _Place) -> None:
        """Collect the commands of a script."""
        for command in script.plain:
            self._run(command, place)
        stack = [] if script.plain else [(script.root, place)]
        while stack:
            node, place = stack.pop()
            kind = node.type
            if kind == "command":
                self._command(script, node, place)
            elif kind in _COMPOUND_NODES:
                stack += self._children(script, node, kind, place)
            elif kind == "{" and script.source[node.end_byte : node.end_byte + 1] not in (b" ", b"\t", b"\n"):
                raise _unknown(script, node)  # bash reads `{ls` as one word
            elif kind == "redirected_statement":
                stack += self._redirected(script, node, place)
            elif kind == "for_statement":
                self._loop(script, node, place)
                stack.append((node.children[-1], place._replace(loop=True)))
            elif kind not in _SEPARATORS:
                self._other(script, node, kind, place)

    def _children(self, script: Script, node: Node, kind: str, place: _Place) -> Iterable[tuple[Node, _Place]]:
        """Return the parts of a compound in reverse, with what encloses them."""
        children = node.children
        if kind == "while_statement":
            place = place._replace(loop=True)
        elif kind == "pipeline":
            _pass_names(script, children)
        found: list[tuple[Node, _Place]] = []
        for child in children:
            if child.type == "&" and found:
                found[-1] = (found[-1][0], place._replace(background=True))
            else:
                found.append((child, place))
        return reversed(found)

    def _other(self, script: Script, node: Node, kind: str, place: _Place) -> None:
        """Check a node that holds no statements: a bracket, an assignment, `export`, a comment."""
        if kind == "test_command" and node.id in script.plain_tests:
            command = script.commands[node.id]
            self._substitutions(command.words, place)
            self._add(command, place)
        elif kind in ("variable_assignment", "variable_assignments"):
            nodes = node.named_children if kind == "variable_assignments" else [node]
            for child in nodes:
                self._set(_assigned(script, child), place)
        elif kind == "declaration_command" and node.children[0].type == "export" and len(node.children) > 1:
            for child in node.children[1:]:
                self._set(_assigned(script, child, name_only=True), place, exported=True)
        elif kind != "comment" or not script.starts_at_boundary(node.start_byte):
            raise _Refused("a comment in it may not be one") if kind == "comment" else _unknown(script, node)

    def _redirected(self, script: Script, node: Node, place: _Place) -> Iterable[tuple[Node, _Place]]:
        """Check the redirections of a statement.

        Everything in the statement counts as writing their files, and so does what follows a here-document on its line,
        if the redirection stands there, too.
        """
        bodies: list[Node] = []
        following: list[Node] = []
        before: tuple[str | None, ...] = ()
        behind = place.writes
        for child in node.children:
            if child.type == "heredoc_redirect":  # anything after the delimiter on its line is a child of the document
                behind += self._redirect(script, child, place)
                for part in child.children:
                    if part.type.endswith("_redirect"):
                        behind += self._redirect(script, part, place)
                    elif not part.type.startswith(("heredoc_", "<<")):
                        following.append(part)
            elif not child.type.endswith("_redirect"):
                bodies.append(child)
            elif following:
                behind += self._redirect(script, child, place)
            else:
                before += self._redirect(script, child, place)
        whole = place._replace(writes=before + behind) if before or behind else place
        rest = place._replace(writes=behind) if behind else place
        found = [*((body, whole) for body in bodies), *((statement, rest) for statement in following)]
        return reversed(found)

    def _redirect(self, script: Script, node: Node, place: _Place) -> tuple[str | None, ...]:
        """Check a redirection, and return the files that it writes."""
        if script.source[node.start_byte - 1 : node.start_byte] == b"}":
            raise _Refused("a redirection in it may set a variable")  # `{PATH}>file`
        if node.type == "file_redirect":
            return self._file_redirect(script, node, place)
        if len(script.here_documents) > 1:
            raise _Refused("it has several here-documents")
        text = script.here_documents[0]
        if not text.literal and not text.plain:
            raise _Refused("a here-document in it expands something that is only known when it runs")
        self._substitutions((text,), place)
        return ()

    def _file_redirect(self, script: Script, node: Node, place: _Place) -> tuple[str | None, ...]:
        """Accept descriptor copies, /dev/null, reads of a file and process substitutions; return the files written."""
        targets = node.children_by_field_name("destination")
        operator = next((child.type for child in node.children if not child.is_named), "")
        if not targets:
            raise _Refused("a redirection in it names no file")
        word = script.word(targets[0])
        # `< "$x"` may be a connection (`/dev/tcp/…`), `< "src/$x"` may not.
        begins = word.single and word.text[:1] not in ("", "/", "~") and operator == "<"
        raw = script.text(targets[0].start_byte, targets[0].end_byte)
        if operator in ("<", ">") and raw[:2] in ("<(", ">(") and word.scripts == (raw[2:-1],):
            begins = True  # a process substitution, and nothing else
        if not (word.literal or begins) or word.glob:
            raise _Refused("a redirection in it names a file that is only known when it runs")
        self._substitutions((word,), place)
        text = word.text
        copies = operator in (">&", "<&", ">&-", "<&-") and (text == "-" or (text.isascii() and text.isdigit()))
        reads = operator == "<" and not text.startswith(("/dev/tcp", "/dev/udp"))
        if copies or reads or begins or (operator in _WRITING and text == "/dev/null"):
            return ()
        if operator not in _WRITING:
            raise _Refused("it writes to a file through a redirection" if ">" in operator else "it uses a redirection")
        file = None if text[:1] in ("~", "") else text
        self._written.add(file)
        return (file,)

    def _command(self, script: Script, node: Node, place: _Place) -> None:
        command = script.commands[node.id]
        if node.id in script.separate:  # its words are known, and nothing else is in it
            self._run(command, place)
            return
        for child in node.children:
            kind = child.type
            if kind.endswith("_redirect"):
                # Here-strings are children of their command; file redirections and here-documents usually are its siblings.
                writes = self._redirect(script, child, place)
                place = place._replace(writes=place.writes + writes) if writes else place
            elif not script.starts_at_boundary(child.start_byte) and not script.source[: child.start_byte].endswith(
                b"\\\n"
            ):
                # Adjacent pieces were parsed as one word. A child that starts anywhere else inside a word was misparsed.
                raise _Refused("its words cannot be separated reliably")
        words = command.words
        if not words:
            raise _Refused("it only sets variables")
        # Inlined `word.literal`, because this runs for each word of each command.
        expands = bool(command.assignments)
        for word in words:
            if word.broken or (word.dynamic and not word.plain):
                raise _Refused(_UNKNOWN_VALUE)
            expands = expands or word.dynamic
        if words[0].dynamic or words[0].glob:
            raise _Refused(_UNKNOWN_NAME if words[0].dynamic else "the name of a command in it is a pattern")
        if expands:
            self._expansions(command, place)
        self._run(command, place)

    def _run(self, command: SimpleCommand, place: _Place) -> None:
        """Add a command, unless it only changes variables that the line may set, or leaves a loop."""
        words = command.words
        if words[0].text in _LEAVES_A_LOOP and all(word.text.isascii() and word.text.isdigit() for word in words[1:]):
            return
        if words[0].text == "read" and reads_free_variables(command):
            self._sets_variables = True
        else:
            self._add(command, place)

    def _expansions(self, command: SimpleCommand, place: _Place) -> None:
        """Check the assignments in front of a command, and collect the commands in its substitutions."""
        for name, value in command.assignments:
            if value.broken or (value.dynamic and not value.plain):
                raise _Refused(_UNKNOWN_VALUE)
            if value.dynamic and is_dangerous(name):
                raise _Refused(f"it sets `{name[:40]}`, {_TAKES_COMMANDS}, to a value that is only known when it runs")
        values = (value for _, value in command.assignments)
        self._substitutions((*command.words, *values), place)

    def _loop(self, script: Script, node: Node, place: _Place) -> None:
        """Check the head of `for name in words; do …; done`."""
        kinds = [child.type for child in node.children]
        if kinds[0] != "for" or kinds[-1] != "do_group" or "ERROR" in kinds:
            raise _Refused("it uses a loop of another kind")
        self._sets_variables = True
        for child in node.children[1:-1]:
            if child.type == "variable_name":
                name = script.text(child.start_byte, child.end_byte)
                if not is_free(name):
                    raise _Refused(f"a loop in it sets `{name[:40]}`, which may mean something to a program")
            elif child.type not in ("in", ";", "\n"):
                words = script.words(child.start_byte, child.end_byte)
                unknown = any(word.broken or (word.dynamic and not word.plain) for word in words)
                if unknown or not script.starts_at_boundary(child.start_byte):
                    raise _Refused(_UNKNOWN_VALUE)
                self._substitutions(words, place._replace(writes=()))

    def _set(self, pairs: Iterable[tuple[str, Word]], place: _Place, *, exported: bool = False) -> None:
        """Check what a line sets for the commands behind it."""
        for name, value in pairs:
            if value.broken or (value.dynamic and not value.plain):
                raise _Refused(_UNKNOWN_VALUE)
            free = not exported and is_free(name)
            if not free and is_dangerous(name):
                raise _Refused(f"it sets `{name[:40]}`, {_TAKES_COMMANDS}")
            if not free:
                self._exported.append(name)
            self._sets_variables = True
            self._substitutions((value,), place._replace(writes=()))

    def _substitutions(self, words: Iterable[Word], place: _Place) -> None:
        """Collect the commands in the substitutions of words."""
        for word in words:
            for text in word.scripts:
                if place.depth >= MAX_NESTING:
                    raise _Refused("substitutions are nested too deep in it")
                script = Script(text)
                if script.too_much or script.has_error:
                    raise _Refused("a substitution in it cannot be parsed")
                if not script.plain:
                    collect_commands(script)
                if script.broken or script.embedded:
                    raise _Refused(script.broken or "it nests backquotes")
                before = len(self._commands)
                self._script(script, place._replace(depth=place.depth + 1, writes=()))
                inner = self._commands[before:]
                if not inner:
                    raise _Refused("a substitution in it runs no command")
                if not self._are_seen(inner):
                    raise _Refused("a substitution in it can be read in two ways")

    def _are_seen(self, commands: Sequence[SimpleCommand]) -> bool:
        """Return whether the ask-deny view has the commands, too: they were parsed there as part of the whole line."""
        if self._seen_words is None:
            self._seen_words = frozenset(command.words for command in self._seen)
        return all((command.context.whole or command).words in self._seen_words for command in commands)

    def _add(self, command: SimpleCommand, place: _Place) -> None:
        """Add a command, or the parts of it that rules may cover one by one."""
        if place.loop and moves(command):
            self.moves_in_loop = True
        if place.writes or place.background:
            context = replace(command.context, writes=place.writes, background=place.background)
            command = SimpleCommand(command.words, command.assignments, context)
        parts = executed_commands(command) if command.name == "find" else ()
        self._commands.extend(parts or (command,))

    def _check_written(self) -> None:
        """Check that a rule decides on each file that is written: some command has it as its output."""
        if not self._commands:
            raise _Refused("it runs no command")
        if self._written - {path for command in self._commands for path in command.context.writes}:
            raise _Refused("it writes to a file through a redirection without a command")

    def _check_exports(self) -> None:
        """Put exported variables in front of each command, and refuse what would export the others."""
        exported = tuple((name, Word("")) for name in self._exported)
        for at, command in enumerate(self._commands):
            words = command.words
            if any(word.text == "set" for word in words[:2]) and not all(
                word.literal and _SET_OPTIONS.fullmatch(word.text) for word in words[1:]
            ):
                raise _Refused("it sets variables, and an option of the shell that may export them")
            if exported and words[0].text not in _UNAFFECTED:
                self._commands[at] = SimpleCommand(words, command.assignments + exported, command.context)


def _pass_names(script: Script, stages: Sequence[Node]) -> None:
    """Note what the inputs of `find … -print0 | xargs -0 …` start with."""
    for source, bar, target in zip(stages, stages[1:], stages[2:], strict=False):
        if bar.type == "|" and target.type == "command" and script.commands[target.id].name == "xargs":
            command, inputs = script.commands[target.id], _printed_names(script, source)
            context = replace(command.context, inputs=inputs)
            script.commands[target.id] = SimpleCommand(command.words, command.assignments, context)


def _printed_names(script: Script, node: Node) -> Word | None:
    """Return what the names start with that a `find` prints into a pipe, apart from its errors."""
    if node.type == "redirected_statement":
        node, *redirects = node.children
        if not all(_QUIET.fullmatch(script.text(one.start_byte, one.end_byte)) for one in redirects):
            return None
    if node.type != "command" or any(child.type.endswith("_redirect") for child in node.children):
        return None
    words = script.commands[node.id].words
    return names_for_xargs(words) if words and words[0].text == "find" else None


def _assigned(script: Script, node: Node, *, name_only: bool = False) -> Sequence[tuple[str, Word]]:
    """Return the variable that a node sets, with its value. Refuses elements of arrays: their subscripts are evaluated."""
    text = script.text(node.start_byte, node.end_byte)
    if script.starts_at_boundary(node.start_byte):
        if node.type == "variable_assignment" and _PLAIN_ASSIGNMENT.match(text):
            return script.commands[node.id].assignments
        if name_only and node.type == "variable_name" and _PLAIN_ASSIGNMENT.fullmatch(text + "="):
            return ((text, Word("")),)
    raise _Refused(f"it sets `{text[:20]}`, which is no plain variable")


def _unknown(script: Script, node: Node) -> _Refused:
    text = script.text(node.start_byte, node.end_byte)
    construct = _CONSTRUCTS.get(node.type, "")
    return _Refused(f"it has {construct}" if construct else f"it uses `{(text.split() or [node.type])[0][:20]}`")


def argument_list(command: SimpleCommand) -> tuple[SimpleCommand, ...]:
    """Return the allow view of a command that runs without a shell."""
    return tuple(executed_commands(command) if command.name == "find" else ()) or (command,)
