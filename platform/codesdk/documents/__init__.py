"""Reads the YAML that people write, strictly, and knows the place of every value."""

from codesdk.documents.document import Document, Place, Unreadable, nearest, read_document

__all__ = ["Document", "Place", "Unreadable", "nearest", "read_document"]
