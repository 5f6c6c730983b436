"""One layout for the YAML that people and commands write."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import SingleQuotedScalarString

from codesdk.documents.document import DocumentUnreadable, Position, parse_document

_WIDTH = 4096
"""Columns: lines are left as long as they are, since the writer would break them inside of texts."""


def format_yaml(text: str) -> str:
    """The same document in the one layout: two spaces, lists indented, no blanks at line ends. Comments stay.

    Raises:
        Unreadable: it is no document that this package reads.
    """
    before = parse_document(text)
    try:
        loaded = _yaml().load(text)
    except YAMLError as error:
        raise DocumentUnreadable(Position(1, 1), f"This is not YAML: {str(error).splitlines()[0]}.") from error
    if loaded is None:  # comments only
        return text
    after = dump_yaml(loaded)
    # A layout must not change what a file says; where the writer would, the file stays as it is.
    return after if parse_document(after).data == before.data else text


def dump_yaml(data: Any) -> str:
    """Plain data, or a loaded document, as YAML text. Lists of single values stand on one line."""
    out = StringIO()
    _yaml().dump(_inline_scalar_lists(data), out)
    text = "\n".join(line.rstrip(" ") for line in out.getvalue().split("\n"))
    # The writer quotes the three dots, which policies are full of, because at a line's start they would end a document.
    return re.sub(r"(?<=[\[ ])'\.\.\.'(?=[,\]])", "...", text)


def _inline_scalar_lists(data: Any) -> Any:
    if isinstance(data, CommentedMap | CommentedSeq):  # was written by somebody: how it stands is theirs
        return data
    if isinstance(data, str) and data.startswith("?"):  # plain, the writer's own reader takes it for a key's mark
        return SingleQuotedScalarString(data)
    if isinstance(data, dict):
        return {_inline_scalar_lists(key): _inline_scalar_lists(value) for key, value in data.items()}
    if isinstance(data, list):
        items = CommentedSeq(_inline_scalar_lists(item) for item in data)
        if not any(isinstance(item, dict | list) for item in data):
            items.fa.set_flow_style()
        return items
    return data


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
