"""The manifest of a backup. Written last, so a directory without one is not a backup."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field, ValidationError

from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

NAME = "manifest.json"
FORMAT = 1
CHUNK_BYTES = 1024 * 1024


class BackupInvalid(Fault):
    """Not a backup, incomplete, or of a newer version."""

    code = "BACKUP_INVALID"
    exit_code = ExitCode.DATA


class Entry(FrozenModel):
    """One file of a backup."""

    path: str
    """Relative to the backup, with slashes."""
    sha256: str
    size: int


class Manifest(FrozenModel):
    """A backup."""

    format: int = Field(default=FORMAT, ge=1)
    version: str
    """CodeSDK version that made it."""
    instance: str
    """Instance id of the installation."""
    created_at: str
    """RFC 3339."""
    files: tuple[Entry, ...]
    damaged: tuple[str, ...] = ()
    """Hashes of artifacts that were already damaged or missing when the backup was made."""


def entry(root: Path, path: Path) -> Entry:
    """Hash a file and return its entry."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
            size += len(piece)
    return Entry(path=path.relative_to(root).as_posix(), sha256=digest.hexdigest(), size=size)


def write(root: Path, manifest: Manifest) -> None:
    """Write the manifest and sync it. Call after all files are written."""
    with (root / NAME).open("x") as file:
        file.write(manifest.model_dump_json(indent=1))
        file.flush()
        os.fsync(file.fileno())


def read(root: Path) -> Manifest:
    """The manifest of the backup in that directory.

    Raises:
        BackupInvalid: there is none that this version can read.
    """
    try:
        found = Manifest.model_validate_json((root / NAME).read_bytes())
    except OSError as error:
        raise BackupInvalid(f"{root} is not a backup: it has no readable {NAME}.", advice="Name another.") from error
    except ValidationError as error:
        raise BackupInvalid(f"{root / NAME} is not of this version.", advice="Use the CodeSDK that made it.") from error
    if found.format != FORMAT:
        raise BackupInvalid(
            f"{root} is a backup of format {found.format}; this version reads {FORMAT}.", advice="Use a newer CodeSDK."
        )
    return found


def verify(root: Path, files: Iterable[Entry]) -> None:
    """Verify size and hash of every file.

    Raises:
        BackupInvalid: a file is missing, changed, or outside the backup.
    """
    for wanted in files:
        path = root / wanted.path
        # Reject `..` even if it resolves inside: on restore it would lead elsewhere.
        if ".." in path.parts or not path.resolve().is_relative_to(root.resolve()):
            raise BackupInvalid(
                f"The backup names {wanted.path}, which is outside of it.", advice="Do not use this backup."
            )
        try:
            found = entry(root, path)
        except OSError as error:
            raise BackupInvalid(f"{path} cannot be read: {error.strerror or error}.", advice="Use another.") from error
        if found != wanted:
            raise BackupInvalid(f"{path} differs from what was backed up.", advice="Use another backup.")
