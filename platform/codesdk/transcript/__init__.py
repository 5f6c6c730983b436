"""The conversation that a session's log tells: a pure fold, and its forms for reading."""

from codesdk.transcript.fold import Transcript, TranscriptEntry, fold
from codesdk.transcript.usage import Usage

__all__ = ["Transcript", "TranscriptEntry", "Usage", "fold"]
