"""Packs a directory as the tar archive from which a workspace starts."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def pack(directory: Path, *, max_bytes: int = MAX_BYTES) -> tuple[bytes, int]:
    """Return the archive (tar.gz) and the number of files in it.

    In a git work tree, packs what git tracks or would add; elsewhere everything but caches and version control. Keeps
    symbolic links; skips anything that is neither file nor link.

    Raises:
        WorkspaceRefused: there is no such directory, or it is unreadable or too large.
    """
    check_directory(directory)
    names = _git_files(directory)
    paths = [directory / name for name in names] if names is not None else list(_walk(directory))
    try:
        return _tar(directory, paths, max_bytes)
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


def _git_files(directory: Path) -> list[str] | None:
    """Return the files that git tracks or would add, respecting .gitignore; None without git or a work tree."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(directory), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if listed.returncode != 0:
        return None
    return sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name})


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in EXCLUDED_NAMES)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in sorted([*files, *links]))


def _tar(directory: Path, paths: Iterable[Path], max_bytes: int) -> tuple[bytes, int]:
    out = io.BytesIO()
    taken = total = 0
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for path in paths:
            if not path.is_symlink() and not path.is_file():
                continue  # deleted but still tracked, a submodule, a socket
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(directory)))
            if entry.islnk():  # store a hard link as a copy
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            total += entry.size
            if total > max_bytes:
                raise WorkspaceRefused(
                    f"{directory} has more than {max_bytes // 2**20} MiB of files.",
                    advice="Give a smaller directory, or list what is not needed in .gitignore.",
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
