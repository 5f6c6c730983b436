"""Strict YAML for files that people write: parsing with positions, formatting, quantities and polling for changes."""

from codesdk.documents.document import (
    Document,
    DocumentUnreadable,
    Position,
    nearest,
    parse_document,
    read_document,
    read_text,
)
from codesdk.documents.faults import FileInvalid
from codesdk.documents.file_poller import FilePoller
from codesdk.documents.formatting import dump_yaml, format_yaml
from codesdk.documents.quantities import SIZE, TIME

__all__ = [
    "SIZE",
    "TIME",
    "Document",
    "DocumentUnreadable",
    "FileInvalid",
    "FilePoller",
    "Position",
    "dump_yaml",
    "format_yaml",
    "nearest",
    "parse_document",
    "read_document",
    "read_text",
]
