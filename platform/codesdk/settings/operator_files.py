"""What the operator alone may write: the sealing key, secrets for egress, lists of images and of issuers."""

from __future__ import annotations

import secrets
from pathlib import Path

from pydantic import Field, field_validator

from codesdk.settings.data_directory import DataDirectorySettings

MIN_KEY_CHARS = 32
"""Characters of a sealing key; as base64 that is 192 bits."""


class OperatorFileSettings(DataDirectorySettings):
    """Files of the data directory, unless they are said to be elsewhere."""

    sealing_key: str = Field(default="", repr=False)
    """Seals secrets in the database and signs links: 32 random bytes or more, as text. Empty: the file `sealing.key` in
    the data directory, made at the first need. Processes of one installation need the same."""
    secrets_dir: str = ""
    """Secrets that the egress proxy adds, a folder for each tenant; empty: `secrets` in the data directory."""
    images_file: str = ""
    """The operator's list of further images; empty: `images.yaml` in the data directory, where there is one."""
    logins_file: str = ""
    """The operator's list of issuers whose tokens let people in; empty: `logins.yaml` in the data directory, where there
    is one."""

    @field_validator("sealing_key")
    @classmethod
    def _check_sealing_key(cls, given: str) -> str:
        if given and len(given) < MIN_KEY_CHARS:
            raise ValueError(
                f"it has fewer than {MIN_KEY_CHARS} characters; `openssl rand -base64 32` makes a good one"
            )
        return given

    def resolved_sealing_key(self) -> bytes:
        """The key in force."""
        return (self.sealing_key or self._read_or_create("sealing.key", lambda: secrets.token_urlsafe(32))).encode()

    def resolved_secrets_dir(self) -> Path:
        """The directory in force, made or not."""
        return Path(self.secrets_dir) if self.secrets_dir else self.data_dir / "secrets"

    def resolved_images_file(self) -> Path:
        """The list in force."""
        return Path(self.images_file) if self.images_file else self.data_dir / "images.yaml"

    def resolved_logins_file(self) -> Path:
        """The list in force."""
        return Path(self.logins_file) if self.logins_file else self.data_dir / "logins.yaml"
