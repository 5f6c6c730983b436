"""Packs a directory as the tar archive from which a workspace starts."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from codesdk.client.git_work_tree import clone_history, list_files
from codesdk.errors import ExitCode, Fault

MAX_BYTES = 64 * 1024 * 1024
"""Maximum sum of file sizes: the archive is held in memory and stored as one artifact."""
EXCLUDED_NAMES = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".tox"}
)
"""Folders that are skipped outside a git work tree."""


class WorkspaceRefused(Fault):
    """The directory can't become a workspace."""

    code = "WORKSPACE_REFUSED"
    status = 400
    exit_code = ExitCode.DATA


def pack(directory: Path, *, git_depth: int | None = None, max_bytes: int = MAX_BYTES) -> tuple[bytes, int]:
    """Return the archive (tar.gz) and the number of files in it, those of `.git` not counted.

    In a git work tree, packs what git tracks or would add; elsewhere everything but caches and version control. Keeps
    symbolic links; skips anything that is neither file nor link.

    Args:
        directory: the directory.
        git_depth: commits of the current branch's history to pack as `.git`; 0: all of them; None: no history.
        max_bytes: maximum sum of file sizes.

    Raises:
        WorkspaceRefused: there is no such directory, or it is unreadable or too large.
        GitHistoryRefused: its history was asked for, and can't be copied.
    """
    check_directory(directory)
    names = list_files(directory)
    paths = [directory / name for name in names] if names is not None else list(_walk(directory))
    paths = [path for path in paths if path.is_symlink() or not path.is_dir()]  # not a submodule's
    try:
        with tempfile.TemporaryDirectory(prefix="codesdk-history-") as scratch:
            if git_depth is None:
                return _tar(((directory, paths),), max_bytes)
            history = clone_history(directory, Path(scratch), git_depth)
            entries = sorted(history.rglob("*"))  # git needs its empty directories, too
            archive, count = _tar(((directory, paths), (history.parent, entries)), max_bytes)
            return archive, count - len(entries)
    except OSError as error:
        where = error.filename or directory
        raise WorkspaceRefused(
            f"{where} cannot be read: {(error.strerror or str(error)).lower()}.", advice="Fix its mode, or ignore it."
        ) from error


def check_directory(directory: Path) -> None:
    """Fail early if the path can't be packed.

    Raises:
        WorkspaceRefused: it is not a directory.
    """
    if not directory.is_dir():
        raise WorkspaceRefused(f"{directory} is not a directory.", advice="Give one with --workspace.")


def without_top_folder(archive: bytes) -> bytes:
    """Convert a source archive (tar, tar.gz) to a workspace: strip its top folder, owners and times.

    Raises:
        WorkspaceRefused: it doesn't have exactly one top folder.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=out, mode="w:gz") as target:
        members = source.getmembers()
        tops = {member.name.split("/", 1)[0] for member in members}
        if len(tops) != 1:
            raise WorkspaceRefused(f"The archive has {len(tops)} top folders, not one.")
        for member in members:
            _, _, name = member.name.partition("/")
            if not name or not (member.isfile() or member.isdir() or member.issym()):
                continue
            content = source.extractfile(member) if member.isfile() else None
            target.addfile(_tar_entry(member, name), content)
    return out.getvalue()


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in EXCLUDED_NAMES)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in sorted([*files, *links]))


def _tar(parts: Iterable[tuple[Path, Iterable[Path]]], max_bytes: int) -> tuple[bytes, int]:
    """Pack paths of directories, each under its name in its directory."""
    out = io.BytesIO()
    taken = total = 0
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for directory, path in ((directory, path) for directory, paths in parts for path in paths):
            if not path.is_symlink() and not path.is_file() and not path.is_dir():
                continue  # deleted but still tracked, a socket
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(directory)))
            if entry.islnk():  # store a hard link as a copy
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            total += entry.size
            if total > max_bytes:
                raise WorkspaceRefused(
                    f"{path.relative_to(directory)} is one file too many: a workspace starts with at most"
                    f" {max_bytes // 2**20} MiB of files.",
                    advice="Give a smaller directory, list what is not needed in .gitignore, or lower --git-depth.",
                )
            if entry.isfile():
                with path.open("rb") as content:
                    archive.addfile(_tar_entry(entry, entry.name), content)
            else:
                archive.addfile(_tar_entry(entry, entry.name))
            taken += 1
    return out.getvalue(), taken


def _tar_entry(found: tarfile.TarInfo, name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = found.type, found.linkname, found.size if found.isfile() else 0
    entry.mode = 0o755 if found.isdir() or found.mode & 0o100 else 0o644
    entry.mtime = int(found.mtime)
    return entry
