"""Reads the YAML that people write, strictly, and knows the place of every value."""

from codesdk.documents.amounts import SIZE, TIME
from codesdk.documents.document import Document, Place, Unreadable, nearest, parse_document, read_document, read_text
from codesdk.documents.faults import FileInvalid
from codesdk.documents.layout import dumped, laid_out
from codesdk.documents.watch import Watch

__all__ = [
    "SIZE",
    "TIME",
    "Document",
    "FileInvalid",
    "Place",
    "Unreadable",
    "Watch",
    "dumped",
    "laid_out",
    "nearest",
    "parse_document",
    "read_document",
    "read_text",
]
