"""Strict YAML for files that people write: parsing with positions, formatting, quantities and reloading of changed files."""

from codesdk.documents.document import (
    Document,
    DocumentUnreadable,
    FileInvalid,
    Position,
    ValuePath,
    nearest,
    parse_document,
    read_document,
    read_text,
)
from codesdk.documents.formatting import dump_yaml, format_yaml
from codesdk.documents.quantities import SIZE, TIME
from codesdk.documents.reloading import FilePoller, ReloadedFiles, ReloadedFolders, fingerprint

__all__ = [
    "SIZE",
    "TIME",
    "Document",
    "DocumentUnreadable",
    "FileInvalid",
    "FilePoller",
    "Position",
    "ReloadedFiles",
    "ReloadedFolders",
    "ValuePath",
    "dump_yaml",
    "fingerprint",
    "format_yaml",
    "nearest",
    "parse_document",
    "read_document",
    "read_text",
]
