"""Packs a local directory as the tar that the API takes, and unpacks the one that it returns."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def pack_tree(source: Path) -> bytes:
    """The files and directories below `source` as a plain tar, in memory. Links and special files are left out."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(source.rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                continue
            archive.add(path, arcname=path.relative_to(source).as_posix(), recursive=False)
    return out.getvalue()


def unpack_tree(content: bytes, target: Path) -> None:
    """Unpack a tar below `target`. Members that would leave it are refused, as are links out of it and devices.

    Raises:
        tarfile.FilterError: the archive has such a member.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(target, filter="data")
