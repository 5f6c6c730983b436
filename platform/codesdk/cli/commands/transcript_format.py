"""Forms in which a transcript can be had."""

from __future__ import annotations

from enum import StrEnum


class TranscriptFormat(StrEnum):
    """For reading."""

    MARKDOWN = "markdown"
    HTML = "html"
