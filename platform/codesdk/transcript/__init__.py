"""Transcripts: folds a session's log into its conversation, and renders it."""

from codesdk.transcript.fold import Transcript, TranscriptEntry, fold
from codesdk.transcript.usage import Usage

__all__ = ["Transcript", "TranscriptEntry", "Usage", "fold"]
