"""Reads a client's configuration file and replaces it atomically, with a backup next to it."""

from __future__ import annotations

import os
from pathlib import Path

from codesdk.cli.console.files import CannotWrite

BACKUP_SUFFIX = ".before-codesdk"
"""Suffix of the backup of the file before our first entry."""


def read(place: Path) -> str:
    """Return the file's text; empty if there is no file.

    Raises:
        CannotWrite: it can't be read.
    """
    try:
        with place.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CannotWrite(f"{place} cannot be read: {error}.", advice="Choose another with --file.") from error


def replace(place: Path, before: str, text: str, *, private: bool) -> None:
    """Replace the file atomically if its text is still `before`.

    New and `private` files are readable by their owner only.

    Raises:
        CannotWrite: the file is unchanged, or the client has written it meanwhile.
    """
    if read(place) != before:
        raise CannotWrite(f"{place} was changed by another program meanwhile.", advice="Run this again.")
    target = place.resolve()  # keep a symlink
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    _write(place, target, text, mode & ~0o077 if private else mode)


def save_backup(place: Path, text: str) -> Path:
    """Write the text to the backup file, with the original's mode. Replaces an older backup.

    Raises:
        CannotWrite: the backup could not be written.
    """
    target = place.resolve()
    backup = target.with_name(target.name + BACKUP_SUFFIX)
    _write(place, backup, text, target.stat().st_mode & 0o777)
    return backup


def _write(place: Path, target: Path, text: str, mode: int) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.touch(mode=0o600, exist_ok=False)
        with fresh.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        fresh.chmod(mode)
        fresh.replace(target)
    except FileExistsError as error:  # another process's file: leave it alone
        raise CannotWrite(
            f"{fresh} exists already.", advice="Remove it, unless another command is writing it."
        ) from error
    except (OSError, UnicodeEncodeError) as error:
        fresh.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) else "the address or the token is not valid text"
        raise CannotWrite(f"{place} cannot be written: {why}.", advice="Choose another with --file.") from error
