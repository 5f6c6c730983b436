"""The values of `transcript --format`."""

from __future__ import annotations

from enum import StrEnum


class TranscriptFormat(StrEnum):
    """How a transcript is written."""

    MARKDOWN = "markdown"
    HTML = "html"
