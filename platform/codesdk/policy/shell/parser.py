"""Parses a script into simple commands and here-documents, and reports what is ambiguous.

A list or pipeline of plain and quoted words is split directly: every shell reads it alike. For any other script, tree-sitter
provides the structure, and words are parsed again from the source. Constructs that bash and tree-sitter parse
differently (here-documents, words split by a line continuation, arguments after a redirection) are checked separately.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from codesdk.domain.work_budget import WorkBudget
from codesdk.policy.shell.braces import expand
from codesdk.policy.shell.commands import MAX_BYTES, SimpleCommand
from codesdk.policy.shell.conditional_expressions import bracket_words
from codesdk.policy.shell.words import UNKNOWN, Word, literal_commands, unquote

_BASH = Language(tree_sitter_bash.language())
_UNMETERED_BYTES = 1000
"""Sources up to this size need no step limit: the worst case takes about 10 ms."""
_MAX_STEPS = 400
"""Progress calls of the parser: about 12 kB of dense commands, or here-documents of any length; at most 80 ms."""
_READ_BYTES = 1024
_MAX_READS = 4096
"""Reads of the parser, `_READ_BYTES` each: at most 100 ms. One step can look ahead to the end of the source, so steps
alone don't limit the time: a tangled 64 kB took seconds."""
_BACKSLASHED = re.compile(rb"\\(?:[ \t\v\f]|.)", re.DOTALL)
_NOT_ASCII = re.compile(rb"[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf7][\x80-\xbf]{3}")
_FILLERS = {2: "§".encode(), 3: "§x".encode(), 4: "§§".encode()}
"""By length: characters that belong to no name, and of which the first is below U+0100."""
_BEFORE_WORD = frozenset(b" \t\n;&|()<>{`!")
_LEAVES = frozenset(("word", "number", "raw_string", "string_content", "comment", "variable_name", "file_descriptor"))
_NEEDS_STRUCTURE = frozenset(
    [
        *("if", "then", "elif", "else", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in"),
        *("function", "time", "coproc"),
        *("declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"),
        "xargs",  # what it gets depends on the command in front of it
    ]
)
"""Names that make a list of plain words more than a list of commands: reserved words, declarations."""
_HOLDS_BACKQUOTES = frozenset(("expansion", "command_substitution", "arithmetic_expansion"))
_ESCAPED = re.compile(r"\\[\\`$]")
_EXPANSION = re.compile(r"`|\$[A-Za-z0-9_@*#?$!({\[-]|\\\n")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[.*\])?\+?=", re.DOTALL)


class _ParseBuffer(threading.local):
    """A reusable input buffer for each thread's parses.

    The binding (0.26) leaks the buffer it is given, so a new one for each parse would leak a copy of each script.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()

    def fill(self, text: memoryview) -> bytearray:
        """Replace the content. The binding no longer reads the old content when it asks for more."""
        self.buffer[:] = text
        return self.buffer


_PARSE_BUFFER = _ParseBuffer()


def _parse(source: bytes) -> Tree | None:
    """Parse the source. Return None if it is too long or takes too many steps: some errors cost quadratic time.

    The limit is in parser steps instead of time, so the same text always gets the same result.
    """
    if len(source) <= _UNMETERED_BYTES:
        return Parser(_BASH).parse(source)
    if len(source) > MAX_BYTES:
        return None
    steps, reads = WorkBudget(_MAX_STEPS), WorkBudget(_MAX_READS)
    text = memoryview(source)

    def read(offset: int, _: object) -> bytearray:
        # Nothing more once the reads are spent: the parser asks the progress callback only between steps.
        return _PARSE_BUFFER.fill(text[offset : offset + _READ_BYTES] if reads.spend(1) else text[:0])

    try:
        # The binding ignores the callback when it parses bytes, so it gets a read function.
        tree = Parser(_BASH).parse(read, progress_callback=lambda _offset, _error: not steps.spend(1) or reads.left < 0)
    except ValueError:  # the binding raises this when the callback stops it
        return None
    finally:
        _PARSE_BUFFER.buffer.clear()
    return tree if reads.left >= 0 else None


def _grammar_source(source: bytes) -> bytes:
    """Return a source of the same structure and length for tree-sitter; words are read from the source itself.

    Each blank behind a backslash is replaced: for bash it is part of a word, for tree-sitter space between words. In
    single quotes a backslash is no escape, and the replacement no harm.

    So is each character that isn't ASCII: for bash it is a part of a word, never a blank or a letter of a name. The
    scanner of tree-sitter-bash 0.25 calls `isdigit` on any character behind a `{`, which reads memory beyond the C
    library's table from U+0100 on: `{` and U+FE196 ended the process.
    """
    if not source.isascii():
        source = _NOT_ASCII.sub(lambda found: _FILLERS[len(found[0])], source)
    if b"\\" in source:
        source = _BACKSLASHED.sub(lambda found: b"\\x" if found[0][1:] in b" \t\v\f" else found[0], source)
    return source


class Script:
    """A parsed script and the words of its commands."""

    def __init__(self, text: str) -> None:
        self.source = text.encode("utf-8", "surrogatepass")
        self._ascii = text if len(text) == len(self.source) else None
        self.plain = _plain_commands(text) if len(self.source) <= MAX_BYTES else ()
        """All its commands, in order, if it needs no parser; otherwise none."""
        self.commands: dict[int, SimpleCommand] = {}
        """Commands by node id."""
        self.separate: set[int] = set()
        """Node ids of commands whose parts all start where bash would start a word, and which have no redirection."""
        self.plain_tests: set[int] = set()
        """Node ids of `[ … ]` and `[[ … ]]` whose words are known."""
        self.here_documents: list[Word] = []
        self.redirections: list[Word] = []
        """Files that redirections read or write."""
        self.values: list[tuple[str, Word]] = []
        """Values of loop variables, by variable; without one, elements of arrays and here-strings."""
        self.embedded: list[str] = []
        """Scripts that tree-sitter does not parse: backquotes in here-documents, expansions and backquotes."""
        self.broken = ""

    @cached_property
    def _tree(self) -> Tree | None:
        return _parse(_grammar_source(self.source))

    @property
    def root(self) -> Node:
        """The root of its tree; of an empty one if it is too much to parse."""
        return (self._tree or Parser(_BASH).parse(b"")).root_node

    @property
    def too_much(self) -> bool:
        """Whether it is too long or too tangled to parse."""
        return not self.plain and self._tree is None

    @property
    def has_error(self) -> bool:
        """Whether it is not a script that can be parsed."""
        return not self.plain and self.root.has_error

    @property
    def is_unreliable(self) -> bool:
        """Whether its commands may be others than those that were collected."""
        return self.has_error or bool(self.broken)

    def text(self, start: int, end: int) -> str:
        """Return a slice of the source, by byte offsets."""
        if self._ascii is not None:
            return self._ascii[start:end]
        return self.source[start:end].decode("utf-8", "replace")

    def word(self, node: Node) -> Word:
        """Return the word of a node."""
        return unquote(self.text(node.start_byte, node.end_byte))

    def words(self, start: int, end: int) -> list[Word]:
        """Return the words of a slice that holds one word; several if it has braces."""
        raw = self.text(start, end)
        return [unquote(raw)] if "{" not in raw else [unquote(word) for word in expand(raw)]

    def is_one_word(self, end: int, start: int) -> bool:
        """Return whether bash reads two nodes as one word: only line continuations, or nothing, between them."""
        if start - end == 1:
            return False
        gap = self.source[end:start]
        return not gap or (b"\\" in gap and not gap.replace(b"\\\n", b""))

    def starts_at_boundary(self, start: int) -> bool:
        """Return whether bash may start a word at the offset."""
        return start == 0 or self.source[start - 1] in _BEFORE_WORD


def _plain_commands(text: str) -> tuple[SimpleCommand, ...]:
    """Return the commands of a list or pipeline whose words are all known; nothing for any other script."""
    if not text.isascii():
        return ()
    commands = tuple([SimpleCommand(tuple(words)) for words in literal_commands(text)])
    return () if any(command.name in _NEEDS_STRUCTURE for command in commands) else commands


def collect_commands(script: Script) -> None:  # noqa: C901 (a branch for each kind of node)
    """Collect the script's commands, here-documents and errors. Iterative, because lists can nest deeply."""
    stack: list[tuple[Node, Node | None]] = [(script.root, None)]
    extra: list[tuple[Node, list[Word]]] = []
    backquotes = b"`" in script.source
    while stack:
        node, statement = stack.pop()
        kind = node.type
        if kind == "command":
            script.commands[node.id], parts = _command_parts(script, node)
            stack += [(child, statement) for child in reversed(parts)]
            continue
        _note_words(script, node, kind)
        command = _command(script, node, kind)
        if command is not None:
            script.commands[node.id] = command
        elif kind == "redirected_statement":
            statement = node
        elif kind == "file_redirect" and statement is not None:
            words_behind = _arguments_after_redirect(script, node)
            if words_behind:
                extra.append((statement, words_behind))
        elif kind == "heredoc_redirect":
            _here_document(script, node)
        elif kind == "herestring_redirect":
            script.here_documents.append(script.word(node.children[-1]))
        if backquotes and kind in _HOLDS_BACKQUOTES:
            script.embedded.extend(_backquote_scripts(script.text(node.start_byte, node.end_byte)))
        stack.extend([(child, statement) for child in reversed(node.named_children) if child.type not in _LEAVES])
    for target, words_behind in extra:
        _append(script, target, words_behind)


def _note_words(script: Script, node: Node, kind: str) -> None:
    """Note words that are no arguments of a command, but may name a file."""
    if kind == "file_redirect":
        script.redirections += [script.word(target) for target in node.children_by_field_name("destination")[:1]]
    elif kind == "herestring_redirect":
        script.values.append(("", script.word(node.children[-1])))
    elif kind in ("for_statement", "array"):
        named = node.named_children
        variable = next(
            (script.text(child.start_byte, child.end_byte) for child in named if child.type == "variable_name"), ""
        )
        script.values += [
            (variable, script.word(child)) for child in named if child.type not in ("variable_name", "do_group")
        ]


def _command(script: Script, node: Node, kind: str) -> SimpleCommand | None:
    """Return the simple command of a builtin with its own syntax, or of an assignment."""
    if kind in ("declaration_command", "unset_command"):
        return SimpleCommand(tuple(script.word(child) for child in node.children))
    if kind == "test_command":
        words = _bracket_expression_words(script, node)
        if words:
            script.plain_tests.add(node.id)
            return SimpleCommand(words)
        quoted = (child for child in _leaves(node) if child.type in ("raw_string", "string"))
        return SimpleCommand((Word("["), *(script.word(child) for child in quoted)))
    if kind == "variable_assignment" and (node.parent is None or node.parent.type != "command"):
        return SimpleCommand((), (_assignment(script, node),))
    return None


def _bracket_expression_words(script: Script, node: Node) -> tuple[Word, ...]:
    """Return the words of a standalone bracket, which tree-sitter parses as an expression and bash as arguments."""
    before = script.source[max(node.start_byte - 1, 0) : node.start_byte]
    after = script.source[node.end_byte : node.end_byte + 1]
    alone = not before.strip(b" \t\n;&|({!") and not after.strip(b" \t\n;&|)}")
    return bracket_words(script.text(node.start_byte, node.end_byte)) if alone else ()


def _backquote_scripts(text: str) -> list[str]:
    """Return the scripts in backquotes; inner backquotes are escaped."""
    return [re.sub(r"\\([`$\\])", r"\1", found) for found in re.findall(r"`((?:[^`\\]|\\.)*)`", text, re.DOTALL)]


def _leaves(node: Node) -> list[Node]:
    found: list[Node] = []
    stack = list(node.children)
    while stack:
        child = stack.pop()
        found.append(child)
        stack.extend(child.children)
    return found


def _command_parts(script: Script, node: Node) -> tuple[SimpleCommand, list[Node]]:
    """Return a command, and those of its parts that may hold others."""
    start = node.start_byte
    literal = literal_commands(script.text(start, node.end_byte))
    if len(literal) == 1:
        if script.starts_at_boundary(start):
            script.separate.add(node.id)
        return SimpleCommand(tuple(literal[0])), []
    return _simple(script, node), [child for child in node.named_children if child.type not in _LEAVES]


def _simple(script: Script, node: Node) -> SimpleCommand:
    spans: list[tuple[int, int]] = []
    behind: list[Word] = []
    assignments: list[tuple[str, Word]] = []
    for child in node.children:
        kind = child.type
        if kind == "variable_assignment":
            assignments.append(_assignment(script, child))
        elif kind == "file_redirect":
            behind.extend(_arguments_after_redirect(script, child))
        elif not kind.endswith("_redirect"):
            start, end = child.start_byte, child.end_byte
            if spans and script.is_one_word(spans[-1][1], start):
                start = spans.pop()[0]
            spans.append((start, end))
    # Redirections before the command word can swallow it as a file. Its position is then unknown, not its words.
    words = [word for start, end in spans for word in script.words(start, end)]
    words = words + behind if words else behind
    if any(word.broken for word in words):
        script.broken = "its words cannot be separated reliably"
    return SimpleCommand(tuple(words), tuple(assignments))


def _assignment(script: Script, node: Node) -> tuple[str, Word]:
    text = script.text(node.start_byte, node.end_byte)
    match = _ASSIGNMENT.match(text)
    if match is None:
        return "", UNKNOWN
    if match[2]:
        return match[1], Word(match[2] + text[match.end() :], dynamic=unquote(match[2]).dynamic)
    return match[1], unquote(text[match.end() :]) if match.end() < len(text) else Word("")


def _arguments_after_redirect(script: Script, redirect: Node) -> list[Word]:
    """Return arguments after a redirection's file, which tree-sitter parses as further files."""
    targets = redirect.children_by_field_name("destination")
    words = [script.word(node) for node in targets[1:]]
    if any(script.is_one_word(before.end_byte, after.start_byte) for before, after in pairwise(targets)):
        script.broken = "its redirections cannot be separated reliably"
    return words


def _append(script: Script, statement: Node, words: list[Word]) -> None:
    """Append arguments to the last command of a redirected statement's body."""
    node: Node | None = statement.child_by_field_name("body")
    while node is not None and node.type != "command":
        node = node.named_children[-1] if node.named_children else None
    known = script.commands.get(node.id) if node is not None else None
    if node is None or known is None:
        script.broken = "its redirections cannot be separated reliably"
        return
    script.commands[node.id] = SimpleCommand((*known.words, *words), known.assignments)
    script.separate.discard(node.id)


def _here_document(script: Script, node: Node) -> None:
    """Store the document's text, and check that bash ends it where tree-sitter does."""
    parts = {child.type: child for child in node.children}
    start, body, end = (parts.get(kind) for kind in ("heredoc_start", "heredoc_body", "heredoc_end"))
    if start is None or end is None or body is None:
        script.broken = "a here-document in it has no end"
        return
    raw = script.text(start.start_byte, start.end_byte)
    delimiter = unquote(raw)
    text = script.text(body.start_byte, end.start_byte)
    tabs = script.text(node.start_byte, start.start_byte).rstrip().endswith("-")
    lines = [line.lstrip("\t") if tabs else line for line in text.split("\n")]
    head = (
        script.text(start.end_byte, body.start_byte).rstrip("\t")
        if tabs
        else script.text(start.end_byte, body.start_byte)
    )
    last = script.text(end.start_byte, end.end_byte)
    after = script.source[end.end_byte : end.end_byte + 1]
    sound = (
        delimiter.literal
        and bool(delimiter.text)
        and last == delimiter.text
        and lines[-1] == ""
        and delimiter.text not in lines
        and head.count("\n") == 1
        and head.endswith("\n")
        and "<<" not in head
        and after in (b"", b"\n")
    )
    if not sound:
        script.broken = "a here-document in it ends somewhere else than it seems"
    quoted = raw != delimiter.text
    if not quoted:
        script.embedded.extend(_backquote_scripts(text))
    expanded = "" if quoted else _ESCAPED.sub(".", text)
    expands = _EXPANSION.search(expanded) is not None
    plain = expands and _EXPANSION.search(_VARIABLE.sub(".", expanded)) is None
    script.here_documents.append(Word(text, dynamic=expands, plain=plain))
