"""Reads a git work tree with the user's git: its files, and a copy of its history."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from codesdk.errors import ExitCode, Fault

_LIST_S = 60
_CLONE_S = 600
DEPTH = 50
"""Commits of a shallow history."""


class GitHistoryRefused(Fault):
    """The directory's history can't become the workspace's."""

    code = "GIT_HISTORY_REFUSED"
    status = 400
    exit_code = ExitCode.DATA


def list_files(directory: Path) -> list[str] | None:
    """Return the files that git tracks or would add, respecting .gitignore; None without git or a work tree."""
    try:
        listed = _git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard", timeout_s=_LIST_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if listed.returncode != 0:
        return None
    return sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name})


def clone_history(directory: Path, scratch: Path, depth: int) -> Path:
    """Clone the current branch of a work tree into an empty directory, and return the `.git` folder.

    It has an index of the last commit, and of the user's settings only where `origin` is, without a password.

    Args:
        directory: the top of a work tree.
        scratch: an empty directory.
        depth: commits to clone; 0: all.

    Raises:
        GitHistoryRefused: it isn't the top of a work tree, or git fails.
    """
    try:
        top = _git(directory, "rev-parse", "--show-toplevel", timeout_s=_LIST_S)
        if top.returncode != 0:
            raise _refused(directory, top)
        if (found := Path(os.fsdecode(top.stdout.rstrip(b"\n")))).resolve() != directory.resolve():
            raise GitHistoryRefused(
                f"{directory} is a folder of the git repository {found}.",
                advice=f"Give --workspace {found}, or leave --git out.",
            )
        shallow = [f"--depth={depth}"] if depth else []
        copy = scratch / "copy"
        # As a URL: git copies a plain path whole. Without templates: those hold the user's hooks.
        words = ["clone", "-q", "--no-checkout", "--single-branch", "--template=", *shallow]
        cloned = _git(directory, *words, f"file://{directory.resolve()}", str(copy), timeout_s=_CLONE_S)
        if cloned.returncode != 0:
            raise _refused(directory, cloned)
        if _git(copy, "rev-parse", "-q", "--verify", "HEAD", timeout_s=_LIST_S).returncode == 0:
            _git(copy, "read-tree", "HEAD", timeout_s=_CLONE_S).check_returncode()
        origin = _git(directory, "remote", "get-url", "origin", timeout_s=_LIST_S)
        url = _without_credentials(os.fsdecode(origin.stdout.strip())) if origin.returncode == 0 else ""
        change = ("set-url", "origin", url) if url else ("remove", "origin")
        _git(copy, "remote", *change, timeout_s=_LIST_S).check_returncode()
    except (OSError, subprocess.SubprocessError) as error:
        raise GitHistoryRefused(
            f"git can't copy the history of {directory}: {error}.", advice="Install git, or leave --git out."
        ) from error
    shutil.rmtree(copy / ".git" / "logs", ignore_errors=True)  # reflogs have this machine's paths and user
    return copy / ".git"


def _without_credentials(url: str) -> str:
    """Return the URL of a server without user and password; "" for a path of this machine."""
    if "://" not in url:
        is_scp = ":" in url and "/" not in url.partition(":")[0]  # git@host:path
        return url if is_scp else ""
    parts = urlsplit(url)
    user, _, server = parts.netloc.rpartition("@")
    if parts.scheme == "file" or not server:
        return ""
    # Over HTTP the user's name may be a token.
    kept = f"{user.partition(':')[0]}@{server}" if user and parts.scheme == "ssh" else server
    return urlunsplit(parts._replace(netloc=kept))


def _refused(directory: Path, ran: subprocess.CompletedProcess[bytes]) -> GitHistoryRefused:
    said = ran.stderr.decode(errors="replace").strip().splitlines()
    return GitHistoryRefused(
        f"git can't copy the history of {directory}: {said[-1] if said else f'it exits with {ran.returncode}'}.",
        advice="Make it a git repository, or leave --git out.",
    )


def _git(directory: Path, *words: str, timeout_s: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "-C", str(directory), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
    )
