"""The part of the approval page about the call: what will run, what it can do, its files. Pure.

Text from agents is hostile: it is escaped, control and bidirectional characters are made visible, long lines wrap, and
nothing is left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from codesdk.approvals.missing_files import missing_files
from codesdk.transcript import preview_text
from codesdk.transcript.approval_text import Piece, cause_pieces, effect_groups, line_pieces, marked_words
from codesdk.transcript.rendering import escape_control, line

_LINE_COUNT_FROM = 12
"""Number of lines from which a text shows its line count, because important lines may be far below."""
_MAX_SHORT = 60
_OPTION = re.compile(r"(?<=\s)(-[\w-]{1,30})(?!\S)")
"""Options, which the browser would break after a dash."""
_NAMED_COMMAND = re.compile(r" Command: `[^`]*`\.\Z")
_QUOTED = re.compile(r"`([^`]+)`")
_DIFFS = frozenset(("patch", "diff"))
_FOLD_SCRIPTS_FROM = 40
"""Lines of a script that is folded, so that the answer stays in reach."""
_PREVIEW_LIMITS = (
    "The copy has the workspace and nothing else: no network, no secrets, no other programs. "
    "A tool that changes files makes exactly this change or none; a command runs again, and may behave differently."
)


def what_runs(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render the input, and for a registered tool the command line that it becomes."""
    given = shown.get("input")
    if isinstance(argv := shown.get("runs"), Sequence) and not isinstance(argv, str):
        yield _pieces(marked_words([str(word) for word in argv], ()))
        yield from _fields(given or {})
    elif pieces := line_pieces(shown):
        yield _pieces(pieces)
        yield from _fields({name: value for name, value in dict(given or {}).items() if name != "command"})
    elif argv := _argv(given):
        yield _pieces(marked_words(argv, _marked_of(shown, argv)))
        yield from _fields({name: value for name, value in dict(given or {}).items() if name != "argv"})
    else:
        yield from _fields(given or {"input": given})
    if not any(piece.marked for piece in line_pieces(shown)) and not _argv(given) and (cause := cause_pieces(shown)):
        yield f"<p>Asked because of this command in it:</p>{_pieces(cause)}"


def effects(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render what the call can do: each command once, the worst first."""
    groups = effect_groups(shown)
    # The effects say more than the sentence about the tool's classification, which comes first.
    begin = 1 if groups and shown.get("classification") not in (None, "read-only") else 0
    unread = [str(each) for each in _lines(shown.get("risk"))[begin:]]
    commands = list(_commands(shown.get("commands"))) if not groups else []  # of approvals from before an upgrade
    if not groups and not unread and not commands:
        return
    yield '<section><h2>What it can do</h2><ul class="effects">'
    alone = len(groups) == 1 and len(groups[0].commands) == 1
    for group in groups:
        told = () if alone else group.commands
        codes = " ".join(f"<code>{escape(line(command))}</code>" for command in told)
        name = group.severity.name.lower()
        text = escape(line(group.text))
        yield f'<li class="{name}"><strong>{text[:1].upper()}{text[1:]}</strong>{codes}</li>'
    yield from (f'<li class="high"><strong>{escape(line(each))}</strong></li>' for each in unread)
    yield "</ul>"
    yield from ("<p>Every command in it:</p>", *commands) if commands else ()
    yield "</section>"


def scripts(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render the scripts of the workspace that the call runs."""
    for script in _mappings(shown.get("scripts")):
        name = escape(line(str(script.get("path"))))
        text = script.get("text")
        if not isinstance(text, str):
            hidden = escape(line(str(script.get("hidden", "it is not shown"))))
            yield f"<section><h2>Script {name}</h2><p>Its content is not shown: {hidden}.</p></section>"
            continue
        count = text.count("\n") + (not text.endswith("\n"))
        left = script.get("left_out")
        more = f"<p>{left} more characters are not shown.</p>" if isinstance(left, int) else ""
        is_open = " open" if count < _FOLD_SCRIPTS_FROM else ""
        yield f'<details class="fold"{is_open}><summary><strong>Script {name}</strong> <span class="soft">{_count(count)}</span></summary>'
        yield f"{_block(text)}{more}</details>"


def files(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render the files that are bound. If one of them changes, the call doesn't run."""
    given = shown.get("bound")
    if not isinstance(given, Mapping) or not given:
        return
    there = [each for each in _mappings(given.get("files")) if each.get("kind") != "absent"]
    gone = missing_files(shown)
    more = given.get("more")
    other = {
        name: value for name, value in given.items() if name not in ("files", "more") or not _is_known(name, value)
    }
    if not there and not gone.files and not more and not other:
        return
    yield "<section><h2>Files that your answer covers</h2>"
    yield '<p class="soft small">If one of them changes before the call starts, nothing runs.</p><ul class="plain">'
    yield from (f"<li>{escape(line(_file(each)))}</li>" for each in _unique(there))
    yield from (f"<li>{escape(line(path))}, which is missing and must stay so</li>" for path in gone.files)
    yield "</ul>"
    if isinstance(more, str) and more:
        yield f"<p><strong>{escape(line(more))}</strong></p>"
    if other:
        yield _block(_json(other))
    yield "</section>"


def fingerprints(shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and content hash of each bound file, and what else is bound: for the folded details."""
    bound = shown.get("bound")
    for mark in _unique(_mappings(bound.get("files")) if isinstance(bound, Mapping) else []):
        if mark.get("sha256"):
            yield f"Hash of {mark.get('path')}", str(mark["sha256"])
    if counted := missing_files(shown).counted:
        yield "Other words", counted


def preview(shown: Mapping[str, Any]) -> Iterator[str]:
    """Render the dry run's effects, if there was one."""
    given = shown.get("preview")
    if not isinstance(given, Mapping):
        return
    kind = ' class="high"' if {"failed", "failed_in_copy"} & set(given) else ""
    yield f"<section><h2>{preview_text.HEADING}</h2><p{kind}>{escape(preview_text.outcome_line(given))}</p>"
    if changed := preview_text.changes(given):
        yield f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in changed)}</ul>"
    if text := preview_text.diff(given):
        yield _diff(text)
    for name, text in preview_text.output_texts(given):
        yield f"<p>{escape(name)}</p>"
        yield _block(text)
    yield f'<p class="soft small">{_PREVIEW_LIMITS}</p></section>'


def reason(shown: Mapping[str, Any]) -> str:
    """Render the reason, without the command that is marked in the line above it."""
    text = str(shown.get("reason") or "")
    if any(piece.marked for piece in line_pieces(shown)):
        text = _NAMED_COMMAND.sub("", text)
    return "".join(
        f"<code>{escape(line(part))}</code>" if index % 2 else escape(line(part))
        for index, part in enumerate(_QUOTED.split(text))
    )


def facts(given: Mapping[str, Any]) -> str:
    """Render names and values; what has no value is left out."""
    pairs = [
        f"<dt>{escape(line(name))}</dt><dd>{escape(line(value if isinstance(value, str) else _json(value)))}</dd>"
        for name, value in given.items()
        if value not in (None, "", [], {})
    ]
    return f"<dl>{''.join(pairs)}</dl>" if pairs else ""


def _fields(given: Any) -> Iterator[str]:
    """Render an input: short values as a list, texts verbatim, with line breaks as line breaks."""
    if not isinstance(given, Mapping):
        yield _block(_json(given))
        return
    texts = {str(name): value if isinstance(value, str) else _json(value) for name, value in given.items()}
    short = {name: text for name, text in texts.items() if 0 < len(text) <= _MAX_SHORT and text.isprintable()}
    yield facts({name: text for name, text in short.items() if name not in _DIFFS})
    for name, text in texts.items():
        if name in short and name not in _DIFFS:
            continue
        count = text.count("\n") + 1
        size = f' <span class="soft small">{_count(count)}</span>' if count >= _LINE_COUNT_FROM else ""
        yield f"<p>{escape(line(name))}{size}</p>"
        yield _diff(text) if name in _DIFFS else _block(text)


def _commands(given: Any) -> Iterator[str]:
    """Render every command of a line, for approvals without effects."""
    for words in given if isinstance(given, Sequence) and not isinstance(given, str) else ():
        text = shlex.join(map(str, words)) if isinstance(words, Sequence) and not isinstance(words, str) else str(words)
        yield _block(text)


def _pieces(pieces: Sequence[Piece]) -> str:
    def each(piece: Piece) -> str:
        if piece.marked:
            return f"<mark>{escape(escape_control(piece.text))}</mark>"
        parts = _OPTION.split(piece.text)  # options are every second part
        return "".join(
            f"<span>{escape(escape_control(part))}</span>" if index % 2 else escape(escape_control(part))
            for index, part in enumerate(parts)
        )

    # Browsers drop a line break right after <pre>, so we add one.
    return f'<pre class="line">\n{"".join(map(each, pieces))}</pre>'


def _argv(given: Any) -> list[str]:
    argv = given.get("argv") if isinstance(given, Mapping) and given.get("command") is None else None
    known = isinstance(argv, list) and all(isinstance(word, str) for word in argv)
    return list(argv) if known and argv else []


def _marked_of(shown: Mapping[str, Any], argv: list[str]) -> list[int]:
    """The marked words of a command, if it is the whole argument list or the end of it."""
    cause = shown.get("cause")
    if not isinstance(cause, Mapping) or not isinstance(cause.get("command"), list):
        return []
    command, before = cause["command"], len(argv) - len(cause["command"])
    fits = before >= 0 and argv[before:] == command
    return [index + before for index in cause.get("words") or () if isinstance(index, int)] if fits else []


def _file(mark: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in mark.items() if name not in _SHOWN_OF_FILES and value}
    real, path = str(mark.get("real") or ""), str(mark.get("path"))
    leads = f" → {real}" if real and not real.endswith(f"/{path.removeprefix('./')}") and real != path else ""
    kind = "" if mark.get("kind") == "file" else f"{mark.get('kind')}, "
    more = "".join(f", {name} {value}" for name, value in rest.items())
    size = mark.get("size", 0)
    return f"{path}{leads}: {kind}{size} byte{'s' * (size != 1)}{more}"


_SHOWN_OF_FILES = frozenset(("path", "cwd", "kind", "real", "size", "sha256"))


def _unique(marks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each file once, however it is named."""
    return list({(mark.get("path"), mark.get("real")): mark for mark in marks}.values())


def _is_known(name: str, value: Any) -> bool:
    return name == "files" or isinstance(value, str)


def _lines(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, Sequence) else []


def _mappings(given: Any) -> list[Mapping[str, Any]]:
    known = isinstance(given, Sequence) and not isinstance(given, str)
    return [each for each in given if isinstance(each, Mapping)] if known else []


def _count(lines: int) -> str:
    return f"{lines} line{'s' * (lines != 1)}"


def _diff(text: str) -> str:
    kinds = {"+": "add", "-": "cut"}
    rows = [
        f'<span class="{kinds[row[0]]}">{escape(escape_control(row))}</span>'
        if row[:1] in kinds
        else escape(escape_control(row))
        for row in text.split("\n")
    ]
    return "<pre>\n" + "\n".join(rows) + "</pre>"


def _block(text: str) -> str:
    # Browsers drop a line break right after <pre>, so we add one.
    return f"<pre>\n{escape(escape_control(text))}</pre>"


def _json(given: Any) -> str:
    return json.dumps(given, ensure_ascii=False, indent=2)
