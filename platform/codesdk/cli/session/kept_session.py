"""The session that `codesdk up --keep` continues, so that agents reconnect with the token that they have."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from codesdk.cli.api_client import OpenedSession
from codesdk.cli.console.files import write_private_file
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.model import FrozenModel

_FILE = "kept-session.json"


class SessionOptions(FrozenModel):
    """What the user asked for. A session that was opened with other options is not continued."""

    workspace: Path | None
    git_depth: int | None
    mode: PermissionMode
    profile: str
    rules: Path | None


class KeptSession(FrozenModel):
    """A session with its token, and the options that it was opened with."""

    opened: OpenedSession
    options: SessionOptions


def read_kept_session(data_dir: Path) -> KeptSession | None:
    """Read the kept session; None if there is none, or if another version of CodeSDK wrote it."""
    try:
        return KeptSession.model_validate_json((data_dir / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def write_kept_session(data_dir: Path, kept: KeptSession) -> None:
    """Store the session with its token, readable by this user only."""
    write_private_file(data_dir / _FILE, kept.model_dump_json())
