"""Formats YAML in one canonical layout."""

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
"""Columns: wide enough that the writer never wraps a line inside a text."""


def format_yaml(text: str) -> str:
    """Reformat a document: two spaces, indented lists, no trailing blanks. Comments are kept.

    Raises:
        DocumentUnreadable: `parse_document` refuses it.
    """
    before = parse_document(text)
    try:
        loaded = _yaml().load(text)
    except YAMLError as error:
        raise DocumentUnreadable(Position(1, 1), f"This is not YAML: {str(error).splitlines()[0]}.") from error
    if loaded is None:  # comments only
        return text
    after = dump_yaml(loaded)
    # If formatting would change the data, return the text unchanged.
    return after if parse_document(after).data == before.data else text


def dump_yaml(data: Any) -> str:
    """Return plain data, or a loaded document, as YAML text. Lists of scalars are written on one line."""
    out = StringIO()
    _yaml().dump(_inline_scalar_lists(data), out)
    text = "\n".join(line.rstrip(" ") for line in out.getvalue().split("\n"))
    # The writer quotes `...`, which is common in policies, because at the start of a line it ends a document.
    return re.sub(r"(?<=[\[ ])'\.\.\.'(?=[,\]])", "...", text)


def _inline_scalar_lists(data: Any) -> Any:
    if isinstance(data, CommentedMap | CommentedSeq):  # loaded from a file: keep the author's layout
        return data
    if isinstance(data, str) and data.startswith("?"):  # unquoted, the parser reads it as a complex key
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
